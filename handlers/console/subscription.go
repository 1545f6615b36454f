package console

import (
	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// onSale is a plan as buyers see it.
type onSale struct {
	billing.Plan
	Currency string `json:"currency"`
	Enabled  bool   `json:"enabled"`
}

func listPlans(v *visit) error {
	q := v.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	plans := v.console.app.Plans().OnSale()
	offers := make([]onSale, len(plans))
	for i, plan := range plans {
		offers[i] = onSale{plan, v.console.app.Currency, !plan.Disabled}
	}
	return v.answer(cut(offers, p))
}

func listSubscriptions(v *visit) error {
	q := v.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	subscriptions, err := v.runtime.Billing.Subscriptions(v.r.Context(), v.account.UserID)
	if err != nil {
		return err
	}
	return v.answer(cut(subscriptions, p))
}

// preferred is in which order a user wants calls to be paid.
type preferred struct {
	Preference billing.Preference `json:"preference"`
}

func setPreference(v *visit) error {
	in, f := decode[preferred](v)
	if f != nil {
		return f
	}
	if in.Preference == "" {
		return missing("preference")
	}
	if err := v.runtime.Billing.SetPreference(v.r.Context(), v.account.UserID, in.Preference); err != nil {
		return err
	}
	return v.answer(in)
}

// The bodies of docs/reference/money.md#subscriptions. A member that is a pointer is
// required. What the others must be is for billing to say.
type (
	purchase struct {
		PlanID         *int64 `json:"plan_id"`
		IdempotencyKey string `json:"idempotency_key"`
	}
	claim struct {
		PlanID *int64 `json:"plan_id"`
	}
	renewal struct {
		SubscriptionID *int64 `json:"subscription_id"`
		IdempotencyKey string `json:"idempotency_key"`
	}
)

func missing(name string) *fault.Fault {
	return fault.At(fault.MissingParameter, name, "`%s` is required", name)
}

func buyPlan(v *visit) error {
	in, f := decode[purchase](v)
	switch {
	case f != nil:
		return f
	case in.PlanID == nil:
		return missing("plan_id")
	}
	if err := v.protectPurchase(*in.PlanID, in.IdempotencyKey); err != nil {
		return err
	}
	app := v.console.app
	return v.receipt(v.runtime.Billing.Buy(v.r.Context(), app.Plans(), app.Currency, v.account.UserID, *in.PlanID, in.IdempotencyKey))
}

func claimPlan(v *visit) error {
	in, f := decode[claim](v)
	switch {
	case f != nil:
		return f
	case in.PlanID == nil:
		return missing("plan_id")
	}
	app := v.console.app
	return v.receipt(v.runtime.Billing.Claim(v.r.Context(), app.Plans(), app.Currency, v.account.UserID, *in.PlanID))
}

func renewSubscription(v *visit) error {
	in, f := decode[renewal](v)
	switch {
	case f != nil:
		return f
	case in.SubscriptionID == nil:
		return missing("subscription_id")
	}
	if err := v.protectRenewal(*in.SubscriptionID, in.IdempotencyKey); err != nil {
		return err
	}
	app := v.console.app
	return v.receipt(v.runtime.Billing.Renew(v.r.Context(), app.Plans(), app.Currency, v.account.UserID, *in.SubscriptionID, in.IdempotencyKey))
}

// receipt answers what was bought, or why it was not.
func (v *visit) receipt(r billing.Receipt, err error) error {
	if err != nil {
		return err
	}
	return v.answerOnce(envelope{Data: r}, r.Replayed)
}
