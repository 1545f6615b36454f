package console

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// topUpInfo describes the possible top-ups.
type topUpInfo struct {
	Providers []string     `json:"providers"`
	Currency  string       `json:"currency"`
	Min       money.Amount `json:"min"`
	Max       money.Amount `json:"max"`
}

func showTopUp(req *request) (any, error) {
	app := req.console.app
	return topUpInfo{
		Providers: append([]string{}, app.Payments()...),
		Currency:  app.Currency, Min: app.TopUp.Min, Max: app.TopUp.Max,
	}, nil
}

// topUp is the body of an order.
type topUp struct {
	Amount         *money.Amount `json:"amount"`
	IdempotencyKey string        `json:"idempotency_key"`
}

func (in topUp) check() *fault.Fault { return required("amount", in.Amount != nil) }

// openOrder opens an order at a payment service, and answers where to pay it.
func openOrder(req *request, in topUp) (any, error) {
	provider, f := req.provider()
	if f != nil {
		return nil, f
	}
	app, name := req.console.app, req.r.PathValue("provider")
	order, replayed, err := req.runtime.Billing.OpenOrder(req.r.Context(), billing.OrderRequest{
		User: req.account.UserID, Provider: name,
		Amount: *in.Amount, Currency: app.Currency, Key: in.IdempotencyKey,
		Min: app.TopUp.Min, Max: app.TopUp.Max,
		Title: fmt.Sprintf("Top-up of %v %s", *in.Amount, app.Currency),
		URLs:  req.urls(name),
	}, provider)
	app.Metrics().Order(name, replayed, fault.OrInternal(err, req.id))
	if err != nil {
		return nil, err
	}
	return req.once(envelope{URL: order.PayURL, Data: struct {
		records.Order
		Replayed bool `json:"replayed"`
	}{order, replayed}}, replayed)
}

// provider returns the payment service that the path names.
func (req *request) provider() (payments.Provider, *fault.Fault) {
	provider, ok := req.console.app.Payment(req.r.PathValue("provider"))
	if !ok {
		return nil, fault.At(fault.ProviderNotFound, "provider", "there is no payment service of this name here")
	}
	return provider, nil
}

func listOrders(req *request, _ *query.Query, p query.Page) ([]records.Order, int64, error) {
	return req.runtime.Billing.Orders(req.r.Context(), req.account.UserID, p.Skip, p.Limit)
}

func showOrder(req *request) (any, error) {
	return req.runtime.Billing.Order(req.r.Context(), req.account.UserID, req.r.PathValue("trade_no"))
}
