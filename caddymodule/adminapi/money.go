package adminapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
)

// moneyRoutes are the routes that concern wallets, plans, subscriptions and
// usage.
var moneyRoutes = []endpoint{
	{"GET /modelgate/wallets/{user}", showWallet},
	{"POST /modelgate/wallets/{user}/credit", changeWallet((*billing.Service).Credit)},
	{"POST /modelgate/wallets/{user}/debit", changeWallet((*billing.Service).Debit)},
	{"POST /modelgate/wallets/{user}/clear", clearWallet},
	{"GET /modelgate/wallets/{user}/ledger", listLedger},
	{"GET /modelgate/plans", func(*caddymodule.Runtime, *http.Request) (any, error) {
		app, err := caddymodule.Active()
		if err != nil {
			return nil, err
		}
		return listed(app.Plans().All(), nil)
	}},
	{"GET /modelgate/subscriptions", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		user, err := userOf(rt, r, r.URL.Query().Get("user"))
		if err != nil {
			return nil, err
		}
		return listSubscriptions(rt, r, user.ID)
	}},
	{"POST /modelgate/subscriptions", grantPlan},
	{"POST /modelgate/subscriptions/{id}/cancel", cancelSubscription},
	{"GET /modelgate/usage", reportUsage},
	{"GET /modelgate/mismatches", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return listed(rt.Billing.Mismatches(r.Context(), 1000))
	}},
	{"POST /modelgate/verify", verifyStore},
}

// userOf returns the user with this id or name; the zero User, who stands for
// all, when it is empty.
func userOf(rt *caddymodule.Runtime, r *http.Request, idOrName string) (identity.User, error) {
	if idOrName == "" {
		return identity.User{}, nil
	}
	return rt.Directory.User(r.Context(), idOrName)
}

// Wallet is what a user has.
type Wallet struct {
	UserID   string       `json:"user_id"`
	User     string       `json:"user"`
	Currency string       `json:"currency"`
	Balance  money.Amount `json:"balance"`
	Held     money.Amount `json:"held"`     // set aside for tasks
	Reserved money.Amount `json:"reserved"` // by calls under way
	Owed     money.Amount `json:"owed"`     // receivable; spending is paused while there is one
}

func showWallet(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	app, err := caddymodule.Active()
	if err != nil {
		return nil, err
	}
	user, err := rt.Directory.User(r.Context(), r.PathValue("user"))
	if err != nil {
		return nil, err
	}
	funds, err := rt.Ledger.Funds(r.Context(), user.ID)
	return Wallet{
		UserID: user.ID, User: user.Name, Currency: app.Currency,
		Balance: funds.Wallet.Balance, Held: funds.Wallet.Held, Reserved: funds.Reserved, Owed: funds.Owed,
	}, err
}

// walletChange is what an operator wants done to a wallet.
type walletChange struct {
	Amount money.Amount `json:"amount"`
	Reason string       `json:"reason"`
	Key    string       `json:"idempotency_key"`
}

func changeWallet(change func(*billing.Service, context.Context, string, string, money.Amount, string, string) (billing.WalletChange, error)) func(*caddymodule.Runtime, *http.Request) (any, error) {
	return func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		var in walletChange
		if err := decode(r, &in); err != nil {
			return nil, err
		}
		return change(rt.Billing, r.Context(), Operator, r.PathValue("user"), in.Amount, in.Reason, in.Key)
	}
}

func clearWallet(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	var in struct {
		Reason string `json:"reason"`
		Key    string `json:"idempotency_key"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	return rt.Billing.Clear(r.Context(), Operator, r.PathValue("user"), in.Reason, in.Key)
}

// maxLines bounds one answer of the ledger.
const maxLines = 10_000

func listLedger(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	user, err := rt.Directory.User(r.Context(), r.PathValue("user"))
	if err != nil {
		return nil, err
	}
	limit, err := number(r, "limit", 100, 1, maxLines)
	if err != nil {
		return nil, err
	}
	skip, err := number(r, "skip", 0, 0, 1<<53)
	if err != nil {
		return nil, err
	}
	account, err := billing.AccountOf(user.ID, r.URL.Query().Get("account"))
	if err != nil {
		return nil, err
	}
	lines, total, err := rt.Ledger.Entries(r.Context(), account, uint64(skip), int(limit))
	return struct {
		Items []ledger.EntryInfo `json:"items"`
		Total uint64             `json:"total"`
	}{lines, total}, err
}

// number reads a number of the query.
func number(r *http.Request, name string, otherwise, least, most int64) (int64, error) {
	word := r.URL.Query().Get(name)
	if word == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fault.At(fault.InvalidParameter, name, "%s is a number from %d to %d", name, least, most)
	}
	return n, nil
}

// Subscription is a subscription with the name of its user.
type Subscription struct {
	billing.Subscription
	UserName string `json:"user_name,omitempty"`
}

func listSubscriptions(rt *caddymodule.Runtime, r *http.Request, user string) (any, error) {
	subscriptions, err := rt.Billing.AllSubscriptions(r.Context(), user)
	if err != nil {
		return nil, err
	}
	names, err := userNames(rt, r)
	shown := make([]Subscription, len(subscriptions))
	for i, s := range subscriptions {
		shown[i] = Subscription{s, names[s.User]}
	}
	return listed(shown, err)
}

func grantPlan(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	var in struct {
		User   string `json:"user"`
		PlanID int64  `json:"plan_id"`
		Reason string `json:"reason"`
		Key    string `json:"idempotency_key"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	app, err := caddymodule.Active()
	if err != nil {
		return nil, err
	}
	user, err := rt.Directory.User(r.Context(), in.User)
	if err != nil {
		return nil, err
	}
	return rt.Billing.GrantPlan(r.Context(), Operator, app.Plans(), app.Currency, user.ID, in.PlanID, in.Reason, in.Key)
}

func cancelSubscription(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	var in struct {
		Reason string `json:"reason"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, fault.At(fault.InvalidParameter, "id", "a subscription's id is a number")
	}
	return rt.Billing.Cancel(r.Context(), Operator, id, in.Reason)
}
