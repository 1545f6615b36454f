package console

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// topUpInfo is how a wallet can be filled.
type topUpInfo struct {
	Providers []string     `json:"providers"`
	Currency  string       `json:"currency"`
	Min       money.Amount `json:"min"`
	Max       money.Amount `json:"max"`
}

func showTopUp(v *visit) error {
	app := v.console.app
	return v.answer(topUpInfo{
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
func openOrder(v *visit) error {
	name := v.r.PathValue("provider")
	provider, f := v.provider(name)
	if f != nil {
		return f
	}
	in, f := decode[topUp](v)
	switch {
	case f != nil:
		return f
	case in.Amount == nil:
		return missing("amount")
	}
	app := v.console.app
	order, replayed, err := v.runtime.Billing.OpenOrder(v.r.Context(), billing.OrderRequest{
		User: v.account.UserID, Provider: name,
		Amount: *in.Amount, Currency: app.Currency, Key: in.IdempotencyKey,
		Min: app.TopUp.Min, Max: app.TopUp.Max,
		Title: fmt.Sprintf("Top-up of %v %s", *in.Amount, app.Currency),
		URLs:  v.urls(name),
	}, provider)
	if err != nil {
		return err
	}
	return v.answerOnce(envelope{URL: order.PayURL, Data: struct {
		billing.Order
		Replayed bool `json:"replayed"`
	}{order, replayed}}, replayed)
}

// provider returns the payment service of a name.
func (v *visit) provider(name string) (payments.Provider, *fault.Fault) {
	provider, ok := v.console.app.Payment(name)
	if !ok {
		return nil, fault.At(fault.ProviderNotFound, "provider", "there is no payment service of this name here")
	}
	return provider, nil
}

func listOrders(v *visit) error {
	q := v.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	orders, total, err := v.runtime.Billing.Orders(v.r.Context(), v.account.UserID, int(p.skip()), int(p.size))
	if err != nil {
		return err
	}
	return v.answer(listed(orders, int64(total), p))
}

func showOrder(v *visit) error {
	order, err := v.runtime.Billing.Order(v.r.Context(), v.account.UserID, v.r.PathValue("trade_no"))
	if err != nil {
		return err
	}
	return v.answer(order)
}
