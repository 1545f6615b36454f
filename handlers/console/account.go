package console

import (
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

// self is the account as its user sees it.
type self struct {
	ID          string             `json:"id"`
	Name        string             `json:"name"`
	DisplayName string             `json:"display_name,omitempty"`
	Email       string             `json:"email,omitempty"`         // confirmed
	Pending     string             `json:"email_pending,omitempty"` // waits for its code
	Notice      money.Amount       `json:"balance_notice,omitempty"`
	Created     int64              `json:"created"` // Unix seconds
	Role        identity.Role      `json:"role,omitempty"`
	Currency    string             `json:"currency"`
	Balance     money.Amount       `json:"balance"` // of the wallet
	Held        money.Amount       `json:"held"`    // the part of the balance that tasks hold and running calls have reserved
	Owed        money.Amount       `json:"owed"`    // spending pauses while it is above zero
	Preference  records.Preference `json:"preference"`
	Plans       []planUse          `json:"subscriptions"` // those in force, in the order in which they end
	Factors     factors            `json:"factors"`
	Token       *identity.Token    `json:"access_token,omitempty"`   // without its secret
	ConsoleKey  string             `json:"console_key_id,omitempty"` // of the tasks that were submitted here
}

// planUse is the usage of a subscription.
type planUse struct {
	ID         int64        `json:"subscription_id"`
	PlanID     int64        `json:"plan_id"`
	Title      string       `json:"title"`
	QuotaTotal money.Amount `json:"quota_total"` // of the present period
	QuotaUsed  money.Amount `json:"quota_used"`
	QuotaHeld  money.Amount `json:"quota_held,omitempty"` // the part of the rest that tasks hold
	End        int64        `json:"end_time"`
	NextReset  int64        `json:"next_reset_time,omitempty"`
}

func showSelf(req *request) (any, error) {
	ctx, id := req.r.Context(), req.account.UserID
	user, errUser := req.runtime.Directory.User(ctx, id)
	pending, errPending := req.runtime.Directory.PendingEmail(ctx, id)
	factors, errFactors := req.runtime.Directory.Factors(ctx, id)
	funds, errFunds := req.runtime.Ledger.Funds(ctx, id)
	preference, errPreference := req.runtime.Billing.Preference(ctx, id)
	plans, errPlans := req.planUse()
	consoleKey, errKey := req.runtime.Directory.ConsoleKey(ctx, id)
	return self{
		ID: id, Name: user.Name, DisplayName: user.DisplayName, Email: user.Email, Pending: pending, Notice: user.BalanceNotice,
		Created: user.Created, Role: user.Role,
		Currency: req.console.app.Currency, Balance: funds.Wallet.Balance, Held: funds.Wallet.Held + funds.Reserved, Owed: funds.Owed,
		Preference: preference, Plans: plans, Factors: shownFactors(factors), Token: user.Token, ConsoleKey: consoleKey,
	}, errors.Join(errUser, errPending, errFactors, errFunds, errPreference, errPlans, errKey)
}

func (req *request) planUse() ([]planUse, error) {
	running, err := req.runtime.Billing.Running(req.r.Context(), req.account.UserID)
	if err != nil {
		return nil, err
	}
	used := []planUse{}
	for _, s := range running {
		used = append(used, planUse{s.ID, s.PlanID, s.Title, s.QuotaTotal, s.QuotaUsed, s.QuotaHeld, s.EndTime, s.NextResetTime})
	}
	return used, nil
}
