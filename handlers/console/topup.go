package console

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// topUpInfo is how a wallet can be filled.
type topUpInfo struct {
	Providers []string     `json:"providers"`
	Currency  string       `json:"currency"`
	Min       money.Amount `json:"min"`
	Max       money.Amount `json:"max"`
}

func showTopUp(req *request) error {
	app := req.console.app
	return req.answer(topUpInfo{
		Providers: append([]string{}, app.Payments()...),
		Currency:  app.Currency, Min: app.TopUp.Min, Max: app.TopUp.Max,
	})
}

// topUp is the body of an order.
type topUp struct {
	Amount         *money.Amount `json:"amount"`
	IdempotencyKey string        `json:"idempotency_key"`
}

// openOrder opens an order at a payment service, and answers where to pay it.
func openOrder(req *request) error {
	name := req.r.PathValue("provider")
	provider, f := req.provider(name)
	if f != nil {
		return f
	}
	in, f := decode[topUp](req)
	switch {
	case f != nil:
		return f
	case in.Amount == nil:
		return missing("amount")
	}
	app := req.console.app
	order, replayed, err := req.runtime.Billing.OpenOrder(req.r.Context(), billing.OrderRequest{
		User: req.account.UserID, Provider: name,
		Amount: *in.Amount, Currency: app.Currency, Key: in.IdempotencyKey,
		Min: app.TopUp.Min, Max: app.TopUp.Max,
		Title: fmt.Sprintf("Top-up of %v %s", *in.Amount, app.Currency),
		URLs:  req.urls(name),
	}, provider)
	if err != nil {
		return err
	}
	return req.answerOnce(envelope{URL: order.PayURL, Data: struct {
		billing.Order
		Replayed bool `json:"replayed"`
	}{order, replayed}}, replayed)
}

// provider returns the payment service of a name.
func (req *request) provider(name string) (payments.Provider, *fault.Fault) {
	provider, ok := req.console.app.Payment(name)
	if !ok {
		return nil, fault.At(fault.ProviderNotFound, "provider", "there is no payment service of this name here")
	}
	return provider, nil
}

func listOrders(req *request) error {
	q := req.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	orders, total, err := req.runtime.Billing.Orders(req.r.Context(), req.account.UserID, int(p.skip()), int(p.size))
	if err != nil {
		return err
	}
	return req.answer(listed(orders, int64(total), p))
}

func showOrder(req *request) error {
	order, err := req.runtime.Billing.Order(req.r.Context(), req.account.UserID, req.r.PathValue("trade_no"))
	if err != nil {
		return err
	}
	return req.answer(order)
}
