package epay

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// cent is the smallest amount of the protocol, which has two decimal places.
const cent = money.Unit / 100

// Undated implements payments.Undated: the protocol has no time in its notices.
func (*Epay) Undated() bool { return true }

// Checkout implements payments.Provider. It does not call the service: the URL of the page contains
// the signed order.
func (e *Epay) Checkout(_ context.Context, o payments.Order) (payments.Page, error) {
	if e.Key == "" {
		return payments.Page{}, errors.New("the key is missing")
	}
	if err := e.CheckCurrency(o.Currency); err != nil {
		return payments.Page{}, err
	}
	if o.Amount <= 0 || o.Amount%cent != 0 {
		return payments.Page{}, fmt.Errorf("%w: %s %s is not a positive multiple of %s", payments.ErrAmount, o.Amount, o.Currency, cent)
	}
	params := map[string]string{
		"pid":          e.PID,
		"type":         e.Method,
		"out_trade_no": o.TradeNo,
		"notify_url":   o.NotifyURL,
		"return_url":   o.ReturnURL,
		"name":         strings.ReplaceAll(o.Title, separator, " "),
		"money":        o.Amount.String(),
	}
	if ambiguous(params) {
		return payments.Page{}, errors.New("a parameter contains an ampersand, which makes the signature ambiguous")
	}
	query := make(url.Values, len(params)+2)
	for name, value := range params {
		query.Set(name, value)
	}
	query.Set("sign", sign(params, e.Key.Reveal()))
	query.Set("sign_type", signType)
	return payments.Page{
		URL:       strings.TrimRight(e.URL, "/") + "/submit.php?" + query.Encode(),
		Reference: o.TradeNo, // the service has no id before the payment
	}, nil
}
