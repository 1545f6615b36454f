package console

import (
	"errors"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/payments"
)

// urls are where a payment service sends its notices, and people afterwards.
// They are made of base_url, never of what a request calls the host.
func (req *request) urls(provider string) billing.URLs {
	base := req.console.app.BaseURL
	return billing.URLs{
		Notify: func(string) string { return base + "/api/user/" + provider + "/webhook" },
		Return: func(string) string { return base + "/" }, // the pages of the console join there
	}
}

// noPage is the one answer where there is no page: none of the service, none of
// an order that is another service's, and none of an order that is not there.
func noPage() error { return fault.New(fault.NotFound, "there is no such payment page") }

// told is what a payment service has told of an order in each status; of one
// that waits to be paid, or has waited too long, nothing.
var told = map[billing.OrderStatus]payments.Kind{
	billing.Paid: payments.Paid, billing.Review: payments.Paid, billing.Failed: payments.Failed,
	billing.Refunded: payments.Refunded, billing.Disputed: payments.Disputed,
}

// servePage has a payment service show the page of an order, where it serves
// pages itself. There is no credential: whoever knows the number of the order,
// which is random and long, may pay it.
func servePage(req *request) error {
	name, tradeNo := req.r.PathValue("provider"), req.r.PathValue("trade_no")
	provider, _ := req.console.app.Payment(name)
	pager, ok := provider.(payments.Pager)
	if !ok {
		return noPage()
	}
	order, err := req.runtime.Billing.Order(req.r.Context(), "", tradeNo)
	var none *fault.Fault
	switch {
	case errors.As(err, &none) && none.Code == fault.NotFound:
		return noPage()
	case err != nil:
		return err
	case order.Provider != name:
		return noPage()
	}
	urls := req.urls(name)
	pager.ServePage(req.w, req.r, payments.Order{
		TradeNo: tradeNo, Amount: order.Amount, Currency: order.Currency,
		Title:     order.Title,
		NotifyURL: urls.Notify(tradeNo), ReturnURL: urls.Return(tradeNo),
		Expires: time.Unix(order.ExpiresAt, 0),
		Told:    told[order.Status],
	})
	return nil
}
