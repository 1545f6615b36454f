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

func listPlans(req *request) error {
	q := req.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	plans := req.console.app.Plans().OnSale()
	offers := make([]onSale, len(plans))
	for i, plan := range plans {
		offers[i] = onSale{plan, req.console.app.Currency, !plan.Disabled}
	}
	return req.answer(cut(offers, p))
}

func listSubscriptions(req *request) error {
	q := req.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	subscriptions, err := req.runtime.Billing.Subscriptions(req.r.Context(), req.account.UserID)
	if err != nil {
		return err
	}
	return req.answer(cut(subscriptions, p))
}

// preferred is in which order a user wants calls to be paid.
type preferred struct {
	Preference billing.Preference `json:"preference"`
}

func setPreference(req *request) error {
	in, f := decode[preferred](req)
	if f != nil {
		return f
	}
	if in.Preference == "" {
		return missing("preference")
	}
	if err := req.runtime.Billing.SetPreference(req.r.Context(), req.account.UserID, in.Preference); err != nil {
		return err
	}
	return req.answer(in)
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

func buyPlan(req *request) error {
	in, f := decode[purchase](req)
	switch {
	case f != nil:
		return f
	case in.PlanID == nil:
		return missing("plan_id")
	}
	if err := req.protectPurchase(*in.PlanID, in.IdempotencyKey); err != nil {
		return err
	}
	app := req.console.app
	return req.receipt(req.runtime.Billing.Buy(req.r.Context(), app.Plans(), app.Currency, req.account.UserID, *in.PlanID, in.IdempotencyKey))
}

func claimPlan(req *request) error {
	in, f := decode[claim](req)
	switch {
	case f != nil:
		return f
	case in.PlanID == nil:
		return missing("plan_id")
	}
	app := req.console.app
	return req.receipt(req.runtime.Billing.Claim(req.r.Context(), app.Plans(), app.Currency, req.account.UserID, *in.PlanID))
}

func renewSubscription(req *request) error {
	in, f := decode[renewal](req)
	switch {
	case f != nil:
		return f
	case in.SubscriptionID == nil:
		return missing("subscription_id")
	}
	if err := req.protectRenewal(*in.SubscriptionID, in.IdempotencyKey); err != nil {
		return err
	}
	app := req.console.app
	return req.receipt(req.runtime.Billing.Renew(req.r.Context(), app.Plans(), app.Currency, req.account.UserID, *in.SubscriptionID, in.IdempotencyKey))
}

// receipt answers what was bought, or why it was not.
func (req *request) receipt(r billing.Receipt, err error) error {
	if err != nil {
		return err
	}
	return req.answerOnce(envelope{Data: r}, r.Replayed)
}
