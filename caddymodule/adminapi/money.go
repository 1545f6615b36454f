package adminapi

import (
	"context"
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

// Wallet is the money of a user.
type Wallet struct {
	UserID   string       `json:"user_id"`
	User     string       `json:"user"`
	Currency string       `json:"currency"`
	Balance  money.Amount `json:"balance"`
	Held     money.Amount `json:"held"`     // set aside for tasks
	Reserved money.Amount `json:"reserved"` // by calls in flight
	Owed     money.Amount `json:"owed"`     // receivable; spending is paused while it is not zero
}

func showWallet(c *call) (any, error) {
	user, err := c.Directory.User(c.ctx(), c.path("user"))
	if err != nil {
		return nil, err
	}
	return c.wallet(user)
}

func (c *call) wallet(user identity.User) (Wallet, error) {
	funds, err := c.Ledger.Funds(c.ctx(), user.ID)
	return Wallet{
		UserID: user.ID, User: user.Name, Currency: c.app.Currency,
		Balance: funds.Wallet.Balance, Held: funds.Wallet.Held, Reserved: funds.Reserved, Owed: funds.Owed,
	}, err
}

type walletChange struct {
	Amount money.Amount `json:"amount"`
	Key    string       `json:"idempotency_key"`
}

func changeWallet(change func(*billing.Service, context.Context, string, string, money.Amount, string, string) (billing.WalletChange, error)) handler {
	return taking(func(c *call, in walletChange) (any, error) {
		return change(c.Billing, c.ctx(), c.actor, c.path("user"), in.Amount, c.reason, in.Key)
	})
}

type clearing struct {
	Key string `json:"idempotency_key"`
}

func clearWallet(c *call, in clearing) (any, error) {
	return c.Billing.Clear(c.ctx(), c.actor, c.path("user"), c.reason, in.Key)
}

// Subscription is a subscription with the name of its user.
type Subscription struct {
	billing.Subscription
	UserName string `json:"user_name,omitempty"`
}

func listSubscriptions(c *call) (any, error) {
	user, err := c.userOf(c.q.Text("user"))
	if err != nil {
		return nil, err
	}
	subscriptions, err := c.Billing.AllSubscriptions(c.ctx(), user.ID)
	if err != nil {
		return nil, err
	}
	names, err := namesOf(c, subscriptions, func(s billing.Subscription) string { return s.User })
	shown := make([]Subscription, len(subscriptions))
	for i, s := range subscriptions {
		shown[i] = Subscription{s, names[s.User]}
	}
	return listed(shown, err)
}

type grant struct {
	User   string `json:"user"`
	PlanID int64  `json:"plan_id"`
	Key    string `json:"idempotency_key"`
}

func grantPlan(c *call, in grant) (any, error) {
	user, err := c.Directory.User(c.ctx(), in.User)
	if err != nil {
		return nil, err
	}
	return c.Billing.GrantPlan(c.ctx(), c.actor, c.app.Plans(), c.app.Currency, user.ID, in.PlanID, c.reason, in.Key)
}

func cancelSubscription(c *call) (any, error) {
	id, err := c.subscription()
	if err != nil {
		return nil, err
	}
	return c.Billing.Cancel(c.ctx(), c.actor, id, c.reason)
}

// subscription returns the id of the path.
func (c *call) subscription() (int64, error) {
	id, err := strconv.ParseInt(c.path("id"), 10, 64)
	if err != nil {
		return 0, fault.At(fault.InvalidParameter, "id", "id: it is not a number; allowed: the id of a subscription")
	}
	return id, nil
}
