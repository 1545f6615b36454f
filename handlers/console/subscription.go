package console

import (
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/money"
)

// onSale is a plan as buyers see it.
type onSale struct {
	billing.Plan
	Currency string     `json:"currency"`
	Enabled  bool       `json:"enabled"`
	Refusal  fault.Code `json:"refusal,omitempty"` // why the user can neither buy nor claim it
}

// offers returns plans as the user sees them.
func (req *request) offers(plans ...billing.Plan) ([]onSale, error) {
	refusals, err := req.runtime.Billing.Refusals(req.r.Context(), req.account.UserID, plans)
	offers := make([]onSale, len(plans))
	for i, plan := range plans {
		offers[i] = onSale{plan, req.console.app.Currency, !plan.Disabled, refusals[plan.ID]}
		offers[i].Disabled = false // enabled says it
	}
	return offers, err
}

func listPlans(req *request, _ *query.Query, p query.Page) ([]onSale, int64, error) {
	plans, total, _ := cut(req.console.app.Plans().OnSale(), nil, p)
	offers, err := req.offers(plans...)
	return offers, total, err
}

// showPlan answers a plan, also one that is not on sale.
func showPlan(req *request) (any, error) {
	id, _ := strconv.ParseInt(req.r.PathValue("id"), 10, 64)
	plan, found := req.console.app.Plans().Find(id)
	if !found {
		return nil, fault.At(fault.PlanNotFound, "plan_id", "there is no plan %d", id)
	}
	offers, err := req.offers(plan)
	return offers[0], err
}

func listSubscriptions(req *request, _ *query.Query, p query.Page) ([]billing.Subscription, int64, error) {
	return req.runtime.Billing.Subscriptions(req.r.Context(), req.account.UserID, p.Skip, p.Limit)
}

// showSubscription answers a subscription with its plan, whose price and terms a renewal has now.
func showSubscription(req *request) (any, error) {
	id, _ := strconv.ParseInt(req.r.PathValue("id"), 10, 64)
	shown := struct {
		billing.Subscription
		Plan *onSale `json:"plan,omitempty"` // nil: it is not on sale
	}{}
	var err error
	if shown.Subscription, err = req.runtime.Billing.Subscription(req.r.Context(), req.account.UserID, id); err != nil {
		return nil, err
	}
	if plan, found := req.console.app.Plans().Find(shown.PlanID); found && !plan.Disabled {
		shown.Plan = &onSale{Plan: plan, Currency: req.console.app.Currency, Enabled: true}
	}
	return shown, nil
}

// funding is the order of the sources from which the user pays calls.
type funding struct {
	Preference records.Preference `json:"preference"`
}

func (in funding) check() *fault.Fault { return required("preference", in.Preference != "") }

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
		PlanID         *int64        `json:"plan_id"`
		IdempotencyKey string        `json:"idempotency_key"`
		Price          *money.Amount `json:"price"` // that the buyer has seen
	}
	claim struct {
		PlanID *int64 `json:"plan_id"`
	}
	renewal struct {
		SubscriptionID *int64        `json:"subscription_id"`
		IdempotencyKey string        `json:"idempotency_key"`
		Price          *money.Amount `json:"price"`
	}
)

func (in claim) check() *fault.Fault { return required("plan_id", in.PlanID != nil) }

func (in purchase) check() *fault.Fault { return claim{in.PlanID}.check() }

func (in renewal) check() *fault.Fault { return required("subscription_id", in.SubscriptionID != nil) }

func (in purchase) plan(*request) (planID int64, idempotencyKey string, err error) {
	return *in.PlanID, in.IdempotencyKey, nil
}

// plan returns the plan of the subscription: a renewal costs the current price of the plan.
func (in renewal) plan(req *request) (planID int64, idempotencyKey string, err error) {
	s, err := req.runtime.Billing.Subscription(req.r.Context(), req.account.UserID, *in.SubscriptionID)
	return s.PlanID, in.IdempotencyKey, err
}

func buyPlan(req *request, in purchase) (any, error) {
	app := req.console.app
	return req.receipt(req.runtime.Billing.Buy(req.r.Context(), app.Plans().ShownAt(in.Price), app.Currency, req.account.UserID, *in.PlanID, in.IdempotencyKey))
}

func claimPlan(req *request, in claim) (any, error) {
	app := req.console.app
	return req.receipt(req.runtime.Billing.Claim(req.r.Context(), app.Plans(), app.Currency, req.account.UserID, *in.PlanID))
}

func renewSubscription(req *request, in renewal) (any, error) {
	app := req.console.app
	return req.receipt(req.runtime.Billing.Renew(req.r.Context(), app.Plans().ShownAt(in.Price), app.Currency, req.account.UserID, *in.SubscriptionID, in.IdempotencyKey))
}

// receipt answers a purchase, or its error.
func (req *request) receipt(r billing.Receipt, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return req.once(envelope{Data: r}, r.Replayed)
}
