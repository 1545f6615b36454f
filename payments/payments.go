// Package payments is what a payment service must be able to do to fill
// wallets: open a page on which a person pays an order, and tell in a signed
// webhook what became of it. Adapters live below, each a guest module
// modelgate.payments.<provider>.
package payments

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/money"
)

// Provider is one configured payment service.
type Provider interface {
	// Checkout opens the payment of an order at the service. It is called once
	// for an order; an error means that nobody has been sent to pay it.
	Checkout(ctx context.Context, o Order) (Page, error)

	// Read checks a webhook and says what it tells. An error that is
	// [ErrSignature] means that it is not proved to come from the service, or is
	// older or newer than the service allows; any other error, that it is signed
	// well and cannot be read.
	Read(w Webhook) (Notice, error)

	// Acknowledgement is the body that tells the service not to send a webhook
	// again, with its content type. The status is 200.
	Acknowledgement() (body, contentType string)

	// Methods are those by which the service calls the webhook.
	Methods() []string
}

// Undated is a provider whose notices may carry no time, so that nothing but the
// life of the order itself keeps an old one from being credited.
type Undated interface {
	Undated() bool
}

// HeadChecker is a provider that can tell by the head of some webhooks that they
// are not from the service, so that nothing of their body need be read.
type HeadChecker interface {
	// CheckHead returns an error that is [ErrSignature] for a webhook that Read
	// would refuse whatever its body is. w has no Body.
	CheckHead(w Webhook) error
}

// Pager is a provider that serves the page of an order itself, at
// /api/user/<provider>/page/<trade_no>.
type Pager interface {
	ServePage(w http.ResponseWriter, r *http.Request, o Order)
}

// ErrSignature is why a webhook without a good and timely signature is refused.
var ErrSignature = errors.New("the signature is missing, wrong or out of time")

// ErrAmount is why an order is not opened that the service cannot take for its
// amount: too small, or no multiple of what it counts in.
var ErrAmount = errors.New("the payment service does not take this amount")

// Order is what a person is to pay.
type Order struct {
	TradeNo   string       // ours, unique over all providers: 32 characters of [0-9A-Za-z]
	Amount    money.Amount // more than zero
	Currency  string       // ISO 4217, upper case
	Title     string       // for the page
	NotifyURL string       // of the webhook
	ReturnURL string       // where the page sends people afterwards; it credits nothing
	Expires   time.Time    // after which the page should not take money any more

	// Told is what has become of the order, for the page of a [Pager]: Paid,
	// Failed, Refunded or Disputed; empty while it waits to be paid.
	Told Kind
}

// Page is where the person pays.
type Page struct {
	URL       string // absolute
	Reference string // the service's own id of what it opened; a notice may name the payment by another
}

// Webhook is a request of the service, read whole.
type Webhook struct {
	Method string
	Header http.Header
	Query  url.Values
	Body   []byte // raw, at most 64 KiB (docs/reference/http.md#bodies)
	Now    time.Time
}

// Tolerance is how far from now a signature with a time may lie, in the past
// and in the future.
const Tolerance = 300 * time.Second

// Timely tells whether what was signed at a moment may be read now.
func (w Webhook) Timely(signed time.Time) bool {
	age := w.Now.Sub(signed)
	return -Tolerance <= age && age <= Tolerance
}

// Kind is what a notice tells.
type Kind string

// The kinds. Whatever else a service says is Ignored: acknowledged and nothing
// more.
const (
	Ignored  Kind = "ignored"
	Paid     Kind = "paid"     // the order has been paid in full
	Failed   Kind = "failed"   // it will not be paid: declined for good, or expired
	Refunded Kind = "refunded" // Amount has been given back to the payer so far, in all
	Disputed Kind = "disputed" // Amount has been taken from the operator, over the dispute Event names
	Restored Kind = "restored" // Amount of a dispute has come back to the operator
)

// Notice is what a well-signed webhook tells.
type Notice struct {
	Kind     Kind
	Event    string       // the service's id of the event, at most 255 characters; what came once is not done again
	TradeNo  string       // the order; empty when the service names only Payment
	Payment  string       // the service's id of the payment, by which refunds and disputes name it
	Dispute  string       // the service's id of the dispute, for Disputed and Restored
	Amount   money.Amount // in all, for Paid and Refunded
	Currency string       // ISO 4217, upper case

	// Mismatch is why the notice cannot concern us though its signature is good:
	// it comes from the service's test mode and we are live, or the reverse, or
	// it is for another merchant. It is acknowledged, listed and credits nothing.
	Mismatch string
}

// IsTradeNo tells whether text has the form of [Order.TradeNo]. What a service
// sends back and is not of that form is no order of ours.
func IsTradeNo(text string) bool {
	if len(text) != 32 {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// IsReference tells whether text can be an id of a service's own: 1 to 255
// characters of printable ASCII, without a space.
func IsReference(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return text != "" && len(text) <= 255
}
