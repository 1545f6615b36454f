// Package payments defines the interfaces of payment services, which fill wallets. A service opens a
// page on which a user pays an order, and reports the outcome in a signed webhook.
//
// A service implements [Provider] and, if needed, [Undated], [HeadChecker], [CurrencyChecker] and
// [Pager]. It receives an [Order] and a [Webhook], and returns a [Page] and a [Notice]. Each adapter
// is a Caddy module modelgate.payments.<provider>, in a package below this one or of a third party.
// Of this module, the package imports only package money.
package payments

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
)

// Provider is one configured payment service.
type Provider interface {
	// Checkout opens the payment of an order at the service. It is called once for an order. After
	// an error, no user can pay the order.
	Checkout(ctx context.Context, o Order) (Page, error)

	// Read verifies a webhook and decodes it. It returns [ErrSignature] if the webhook has no valid
	// signature or its time is outside [Tolerance]. Any other error means that the webhook is signed
	// correctly and cannot be decoded.
	Read(w Webhook) (Notice, error)

	// Acknowledgement returns the body and the content type that acknowledge a webhook, so that the
	// service does not send it again. The status is 200.
	Acknowledgement() (body, contentType string)

	// Methods returns the HTTP methods by which the service calls the webhook.
	Methods() []string
}

// Undated is an optional interface of a [Provider] whose notices may have no time. Only the expiry of
// the order then prevents that an old notice is credited.
type Undated interface {
	Undated() bool
}

// HeadChecker is an optional interface of a [Provider] that can reject some webhooks by their
// headers, so that their body is not read.
type HeadChecker interface {
	// CheckHead returns [ErrSignature] for a webhook that Read would reject with any body. w has no
	// Body.
	CheckHead(w Webhook) error
}

// CurrencyChecker is an optional interface of a [Provider] that does not support
// every currency.
type CurrencyChecker interface {
	// CheckCurrency returns an error if the service does not support a currency, an ISO 4217 code in
	// upper case. The gateway also calls it on a service that is not provisioned.
	CheckCurrency(currency string) error
}

// Pager is an optional interface of a [Provider] that serves the page of an
// order itself, at /api/user/<provider>/page/<trade_no>.
type Pager interface {
	ServePage(w http.ResponseWriter, r *http.Request, o Order)
}

// ErrSignature is the error of a webhook without a valid and timely signature.
var ErrSignature = errors.New("the signature is missing, wrong or out of time")

// ErrAmount is the error of Checkout if the service does not accept the amount of the order.
// The amount is too small, or not a multiple of the service's unit.
var ErrAmount = errors.New("the payment service does not accept this amount")

// Order is an order that a user pays.
type Order struct {
	TradeNo   string       // id of the order, unique over all providers: 32 characters of [0-9A-Za-z]
	Amount    money.Amount // more than zero
	Currency  string       // ISO 4217, upper case
	Title     string       // shown on the page
	NotifyURL string       // address of the webhook
	ReturnURL string       // target of the page's redirect after the payment; a visit credits nothing
	Expires   time.Time    // the page should accept no payment after this time

	// State is the state of the order, for the page of a [Pager]: Paid,
	// Failed, Refunded or Disputed. It is empty while the order is unpaid.
	State Kind
}

// Page is the page on which the user pays.
type Page struct {
	URL       string // absolute
	Reference string // the service's id of the checkout; a notice may use another id for the payment
}

// Webhook is a request of the service with its complete body.
type Webhook struct {
	Method string
	Header http.Header
	Query  url.Values
	Body   []byte // raw, at most 64 KiB (docs/reference/http.md#bodies)
	Now    time.Time
}

// Tolerance is the largest difference between the time of a signature and now,
// in the past and in the future.
const Tolerance = 300 * time.Second

// Timely reports whether a signature of this time is within [Tolerance].
func (w Webhook) Timely(signed time.Time) bool {
	age := w.Now.Sub(signed)
	return -Tolerance <= age && age <= Tolerance
}

// Kind is the kind of a notice.
type Kind string

// The kinds. Everything else that a service reports is Ignored: it is
// acknowledged and has no effect.
const (
	Ignored  Kind = "ignored"
	Paid     Kind = "paid"     // the order has been paid in full
	Failed   Kind = "failed"   // the order will not be paid: it was declined for good, or has expired
	Refunded Kind = "refunded" // Amount is the total refunded to the payer so far
	Disputed Kind = "disputed" // the service has taken Amount from the operator for the dispute Dispute
	Restored Kind = "restored" // the service has returned Amount of a dispute to the operator
)

// Notice is the content of a correctly signed webhook.
type Notice struct {
	Kind     Kind
	Event    string       // the service's id of the event, at most 255 characters; an event takes effect once
	TradeNo  string       // the order; empty if the service names only Payment
	Payment  string       // the service's id of the payment, which refunds and disputes use
	Dispute  string       // the service's id of the dispute, for Disputed and Restored
	Amount   money.Amount // the total, for Paid and Refunded
	Currency string       // ISO 4217, upper case

	// Mismatch says why the notice cannot concern this gateway although its signature is valid. For
	// example, it is of the service's test mode and the gateway is live, or it is for another
	// merchant. The notice is acknowledged and listed, and credits nothing.
	Mismatch string
}

// IsTradeNo reports whether text has the form of [Order.TradeNo]. A service may return other text,
// which names no order.
func IsTradeNo(text string) bool {
	return len(text) == 32 && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
}

// IsReference reports whether text can be an id of a service: 1 to 255
// characters of printable ASCII without spaces.
func IsReference(text string) bool {
	return text != "" && len(text) <= 255 && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}
