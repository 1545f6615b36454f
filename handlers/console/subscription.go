package console

import (
	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
)

// onSale is a plan as buyers see it.
type onSale struct {
	billing.Plan
	Currency string `json:"currency"`
	Enabled  bool   `json:"enabled"`
}

func listPlans(req *request, _ *query.Query, p query.Page) ([]onSale, int64, error) {
	plans := req.console.app.Plans().OnSale()
	offers := make([]onSale, len(plans))
	for i, plan := range plans {
		offers[i] = onSale{plan, req.console.app.Currency, !plan.Disabled}
	}
	return cut(offers, nil, p)
}

func listSubscriptions(req *request, _ *query.Query, p query.Page) ([]billing.Subscription, int64, error) {
	subscriptions, err := req.runtime.Billing.Subscriptions(req.r.Context(), req.account.UserID)
	return cut(subscriptions, err, p)
}

// funding is the order of the sources from which the user pays calls.
type funding struct {
	Preference records.Preference `json:"preference"`
}

func (in funding) check() *fault.Fault {
	if in.Preference == "" {
		return required("preference")
	}
	return nil
}

func setPreference(req *request, in funding) (any, error) {
	if err := req.runtime.Billing.SetPreference(req.r.Context(), req.account.UserID, in.Preference); err != nil {
		return nil, err
	}
	return in, nil
}

// The bodies of docs/reference/money.md#subscriptions. A member that is a pointer is
// required. Package billing checks the others.
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

func (in claim) check() *fault.Fault {
	if in.PlanID == nil {
		return required("plan_id")
	}
	return nil
}

func (in purchase) check() *fault.Fault { return claim{in.PlanID}.check() }

func (in renewal) check() *fault.Fault {
	if in.SubscriptionID == nil {
		return required("subscription_id")
	}
	return nil
}

func (in purchase) plan(*request) (planID int64, idempotencyKey string, err error) {
	return *in.PlanID, in.IdempotencyKey, nil
}

// plan returns the plan of the subscription: a renewal costs the current price of the plan.
func (in renewal) plan(req *request) (planID int64, idempotencyKey string, err error) {
	subscriptions, err := req.runtime.Billing.Subscriptions(req.r.Context(), req.account.UserID)
	for _, s := range subscriptions {
		if s.ID == *in.SubscriptionID {
			planID = s.PlanID
		}
	}
	return planID, in.IdempotencyKey, err
}

func buyPlan(req *request, in purchase) (any, error) {
	app := req.console.app
	return req.receipt(req.runtime.Billing.Buy(req.r.Context(), app.Plans(), app.Currency, req.account.UserID, *in.PlanID, in.IdempotencyKey))
}

func claimPlan(req *request, in claim) (any, error) {
	app := req.console.app
	return req.receipt(req.runtime.Billing.Claim(req.r.Context(), app.Plans(), app.Currency, req.account.UserID, *in.PlanID))
}

func renewSubscription(req *request, in renewal) (any, error) {
	app := req.console.app
	return req.receipt(req.runtime.Billing.Renew(req.r.Context(), app.Plans(), app.Currency, req.account.UserID, *in.SubscriptionID, in.IdempotencyKey))
}

// receipt answers a purchase, or its error.
func (req *request) receipt(r billing.Receipt, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return req.once(envelope{Data: r}, r.Replayed)
}
