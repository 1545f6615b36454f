package adminapi

import (
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

// UserDetail is a user with the data that support needs first.
type UserDetail struct {
	User
	LockedUntil   int64              `json:"login_locked_until,omitempty"` // Unix seconds; 0: log-ins by password are not locked
	Restricted    *Restriction       `json:"restricted,omitempty"`         // absent: the user's calls are not restricted
	Wallet        Wallet             `json:"wallet"`
	Preference    records.Preference `json:"preference"`
	Budget        *BudgetUse         `json:"budget,omitempty"` // of all keys together; absent: none
	Keys          int                `json:"keys"`             // number of active keys
	Subscriptions []Subscription     `json:"subscriptions"`    // the active ones
	Sessions      []identity.Session `json:"sessions"`
	Calls         []Call             `json:"calls"`  // the latest
	Tasks         []Task             `json:"tasks"`  // the latest
	Orders        []Order            `json:"orders"` // the latest that are pending, in review or disputed
}

// Restriction is the reason why the calls of a user are restricted: their uncollected costs in the
// last 24 hours.
type Restriction struct {
	Uncollected money.Amount `json:"uncollected"`
	Charged     money.Amount `json:"charged"`
	Until       int64        `json:"until"` // Unix seconds; later if the user makes more calls
}

// BudgetUse is the usage of a budget in its current period.
type BudgetUse struct {
	Limit    money.Amount `json:"limit"`
	Used     money.Amount `json:"used"`
	ResetsAt int64        `json:"resets_at,omitempty"` // Unix seconds
}

// latest is the number of calls and tasks in the answer about a user.
const latest = 5

func showUser(c *call) (any, error) {
	ctx := c.ctx()
	user, err := c.shownUser(c.Directory.User(ctx, c.path("user")))
	if err != nil {
		return nil, err
	}
	var errs [8]error
	shown := UserDetail{User: user}
	shown.Wallet, errs[0] = c.wallet(user.User)
	shown.Preference, errs[1] = c.Billing.Preference(ctx, user.ID)
	shown.Sessions, errs[2] = c.Directory.Sessions(ctx, &identity.Account{UserID: user.ID})
	shown.Calls, _, errs[3] = c.latestCalls(user.ID, ledger.CallFilter{}, "", latest, func(*journal.Call) bool { return true })
	tasks, _, err := c.Tasks.List(ctx, task.OfUser(user.ID), task.Page{Limit: latest})
	if errs[4] = err; err == nil {
		shown.Tasks, errs[4] = c.shownTasks(tasks)
	}
	unsettled := billing.OrderFilter{User: user.ID, Status: []records.OrderStatus{records.Pending, records.Review, records.Disputed}}
	orders, _, err := c.Billing.ListOrders(ctx, unsettled, "", query.MaxPage)
	errs[5], shown.Orders = err, make([]Order, len(orders))
	for i, o := range orders {
		shown.Orders[i] = Order{o, user.Name}
	}
	locked, err := c.Directory.LockedUntil(ctx, user.Name, c.app.LoginLimits())
	if errs[6] = err; !locked.IsZero() {
		shown.LockedUntil = locked.Unix()
	}
	r, err := c.Ledger.Restriction(ctx, user.ID, c.app.Tolerance())
	if errs[7] = err; r.Uncollected > 0 {
		shown.Restricted = &Restriction{r.Uncollected, r.Charged, r.Until.Unix()}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if b := user.Limits; b.Budget > 0 {
		used, next, err := c.Ledger.BudgetUsed(ctx, user.ID, ledger.UserBudget(b.Budget, b.Reset))
		if err != nil {
			return nil, err
		}
		shown.Budget = &BudgetUse{Limit: b.Budget, Used: used}
		if !next.IsZero() {
			shown.Budget.ResetsAt = next.Unix()
		}
	}
	keys, err := c.Directory.Keys(ctx, user.ID)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if ends := key.ExpiresAt(); key.Revoked == 0 && (ends == 0 || ends > c.Store.Now().Unix()) {
			shown.Keys++
		}
	}
	running, err := c.Billing.Running(ctx, user.ID)
	shown.Subscriptions = []Subscription{}
	for _, s := range running {
		shown.Subscriptions = append(shown.Subscriptions, Subscription{s, user.Name})
	}
	return shown, err
}
