package console

import (
	"errors"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/payments"
)

// urls returns the URLs to which a payment service sends its notices, and browsers after the
// payment. They are made from base_url, never from the Host of a request.
func (req *request) urls(provider string) billing.URLs {
	base := req.console.app.BaseURL
	return billing.URLs{
		Notify: func(string) string { return base + "/api/user/" + provider + "/webhook" },
		Return: func(tradeNo string) string { return base + req.console.orderPage(tradeNo) },
	}
}

// noPage returns the fault if the service has no pages, or there is no order of this number.
func noPage() error { return fault.New(fault.NotFound, "there is no such payment page") }

// lastNotice maps the status of an order to the kind of the notice that led to it. Pending and
// expired orders have none.
var lastNotice = map[records.OrderStatus]payments.Kind{
	records.Paid: payments.Paid, records.Review: payments.Paid, records.Failed: payments.Failed,
	records.Refunded: payments.Refunded, records.Disputed: payments.Disputed,
}

// servePage serves the payment page of an order, if the payment service has pages here. The
// number of the order is random and long, so it authorizes the caller to pay.
func servePage(req *request) (any, error) {
	name, tradeNo := req.r.PathValue("provider"), req.r.PathValue("trade_no")
	provider, _ := req.console.app.Payment(name)
	pager, ok := provider.(payments.Pager)
	if !ok {
		return nil, noPage()
	}
	order, err := req.runtime.Billing.Order(req.r.Context(), "", tradeNo)
	var none *fault.Fault
	switch {
	case errors.As(err, &none) && none.Code == fault.NotFound:
		return nil, noPage()
	case err != nil:
		return nil, err
	case order.Provider != name:
		return nil, noPage()
	}
	urls := req.urls(name)
	pager.ServePage(req.w, req.r, payments.Order{
		TradeNo: tradeNo, Amount: order.Amount, Currency: order.Currency,
		Title:     order.Title,
		NotifyURL: urls.Notify(tradeNo), ReturnURL: urls.Return(tradeNo),
		Expires: time.Unix(order.ExpiresAt, 0),
		State:   lastNotice[order.Status],
	})
	return nil, nil
}
