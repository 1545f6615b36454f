package stripe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/payments"
)

// event is the envelope of what Stripe tells. Its api_version is not read: the
// members below are the same in all versions since 2019.
type event struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Type     string `json:"type"`
	Livemode *bool  `json:"livemode"`
	Account  string `json:"account"` // of Stripe Connect; absent in events of our own
	Data     struct {
		Object json.RawMessage `json:"object"`
	} `json:"data"`
}

// events are those that mean something; all others are ignored.
//
// Of the events of a dispute, the two are taken that tell of money which moved.
// charge.dispute.created comes for inquiries too, in which nothing has been
// taken yet, and charge.dispute.closed for those and for lost disputes, in
// which nothing more moves.
//
// A refund that fails later (refund.failed) is ignored: it comes without the sum
// in all, is rare, and gives money back to the operator, who can credit it.
var events = map[string]func(object json.RawMessage) (payments.Notice, error){
	"checkout.session.completed":               readPaid,
	"checkout.session.async_payment_succeeded": readPaid,
	"checkout.session.async_payment_failed":    readFailed,
	"checkout.session.expired":                 readFailed,
	"charge.refunded":                          readRefunded,
	"charge.dispute.funds_withdrawn":           readDisputed,
	"charge.dispute.funds_reinstated":          readRestored,
}

// Read implements payments.Provider.
func (s *Stripe) Read(w payments.Webhook) (payments.Notice, error) {
	if err := s.verify(w); err != nil {
		return payments.Notice{}, err
	}
	var e event
	if err := json.Unmarshal(w.Body, &e); err != nil {
		return payments.Notice{}, fmt.Errorf("the event cannot be read: %w", err)
	}
	switch {
	case e.Object != "event":
		return payments.Notice{}, errors.New("the body is no event: its object is another")
	case !payments.IsReference(e.ID):
		return payments.Notice{}, errors.New("the event has no id of 1 to 255 printable characters")
	case e.Livemode == nil:
		return payments.Notice{}, fmt.Errorf("the event %s does not say its livemode", e.ID)
	}
	read, ok := events[e.Type]
	if !ok {
		return payments.Notice{Kind: payments.Ignored, Event: e.ID}, nil
	}
	notice, err := read(e.Data.Object)
	if err != nil {
		return payments.Notice{}, fmt.Errorf("the event %s (%s) cannot be read: %w", e.ID, e.Type, err)
	}
	notice.Event = e.ID
	if notice.Kind != payments.Ignored {
		notice.Mismatch = s.mismatch(e, notice)
	}
	return notice, nil
}

// mismatch is why an event cannot concern us, or empty.
func (s *Stripe) mismatch(e event, n payments.Notice) string {
	switch {
	case *e.Livemode && !s.live:
		return "the event is of live mode, secret_key of test mode"
	case !*e.Livemode && s.live:
		return "the event is of test mode, secret_key of live mode"
	case e.Account != "":
		return "the event is of another account, connected to ours"
	case n.TradeNo == "" && n.Payment == "":
		return "the event names neither an order of ours nor a payment"
	case n.TradeNo == "" && n.Kind == payments.Paid:
		return "the session was not opened for an order of ours"
	}
	return ""
}

// session is a Checkout Session, as far as it is read.
type session struct {
	PaymentStatus     string            `json:"payment_status"`
	ClientReferenceID string            `json:"client_reference_id"`
	AmountTotal       *int64            `json:"amount_total"`
	Currency          string            `json:"currency"`
	PaymentIntent     string            `json:"payment_intent"`
	Metadata          map[string]string `json:"metadata"`
}

// order returns the order the session was opened for, or empty. The metadata
// must say it too: a payer can choose client_reference_id where the operator
// has Payment Links.
func (s session) order() string {
	if no := tradeNo(s.Metadata); no == s.ClientReferenceID {
		return no
	}
	return ""
}

// readPaid reads a session that was completed. A way of payment that takes days
// completes it unpaid; what became of it is told later, by another event.
func readPaid(object json.RawMessage) (payments.Notice, error) {
	var s session
	if err := json.Unmarshal(object, &s); err != nil {
		return payments.Notice{}, err
	}
	if s.PaymentStatus != "paid" {
		return payments.Notice{Kind: payments.Ignored}, nil
	}
	return filled(payments.Notice{Kind: payments.Paid, TradeNo: s.order()}, s.PaymentIntent, s.AmountTotal, s.Currency)
}

func readFailed(object json.RawMessage) (payments.Notice, error) {
	var s session
	if err := json.Unmarshal(object, &s); err != nil {
		return payments.Notice{}, err
	}
	no := s.order()
	if no == "" { // another shop's, and nothing was paid
		return payments.Notice{Kind: payments.Ignored}, nil
	}
	return payments.Notice{Kind: payments.Failed, TradeNo: no}, nil
}

// readRefunded reads a charge of which something has been given back.
func readRefunded(object json.RawMessage) (payments.Notice, error) {
	var charge struct {
		AmountRefunded *int64            `json:"amount_refunded"`
		Currency       string            `json:"currency"`
		PaymentIntent  string            `json:"payment_intent"`
		Metadata       map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(object, &charge); err != nil {
		return payments.Notice{}, err
	}
	n := payments.Notice{Kind: payments.Refunded, TradeNo: tradeNo(charge.Metadata)}
	return filled(n, charge.PaymentIntent, charge.AmountRefunded, charge.Currency)
}

func readDisputed(object json.RawMessage) (payments.Notice, error) {
	return readDispute(object, payments.Disputed, -1)
}

func readRestored(object json.RawMessage) (payments.Notice, error) {
	return readDispute(object, payments.Restored, +1)
}

// readDispute reads a dispute in which money moved, for which sign is +1 when it
// came back. Stripe names the order nowhere in it.
func readDispute(object json.RawMessage, kind payments.Kind, sign int64) (payments.Notice, error) {
	var dispute struct {
		ID            string     `json:"id"`
		Amount        *int64     `json:"amount"`
		Currency      string     `json:"currency"`
		PaymentIntent string     `json:"payment_intent"`
		Movements     []movement `json:"balance_transactions"`
	}
	if err := json.Unmarshal(object, &dispute); err != nil {
		return payments.Notice{}, err
	}
	if !payments.IsReference(dispute.ID) {
		return payments.Notice{}, errors.New("the dispute has no id")
	}
	amount := dispute.Amount
	if part := moved(dispute.Movements, dispute.Currency, sign); part > 0 && amount != nil && part < *amount {
		amount = &part
	}
	n := payments.Notice{Kind: kind, Dispute: dispute.ID}
	return filled(n, dispute.PaymentIntent, amount, dispute.Currency)
}

// movement is a change of the operator's balance with Stripe.
type movement struct {
	Amount   int64  `json:"amount"` // without Stripe's fee; negative when taken
	Currency string `json:"currency"`
}

// moved returns how much of a dispute has moved in a direction, or zero where
// that is not told in its own currency. It can be less than was disputed:
// what had been refunded before is given back to the operator.
func moved(movements []movement, currency string, sign int64) (sum int64) {
	for _, m := range movements {
		if m.Currency != currency || (m.Amount < 0) != (sign < 0) {
			continue
		}
		if sum += sign * m.Amount; sum < 0 {
			return 0 // more than can be counted
		}
	}
	return sum
}

// filled returns a notice with what all objects have in common.
func filled(n payments.Notice, payment string, minor *int64, currency string) (payments.Notice, error) {
	if payment != "" && !payments.IsReference(payment) {
		return payments.Notice{}, errors.New("payment_intent is no id")
	}
	if minor == nil {
		return payments.Notice{}, errors.New("the amount is missing")
	}
	currency = strings.ToUpper(currency)
	amount, err := fromMinor(*minor, currency)
	if err != nil {
		return payments.Notice{}, err
	}
	n.Payment, n.Amount, n.Currency = payment, amount, currency
	return n, nil
}

// tradeNo returns the order in the metadata of an object, or empty where there
// is none of ours.
func tradeNo(metadata map[string]string) string {
	if no := metadata[tradeNoKey]; payments.IsTradeNo(no) {
		return no
	}
	return ""
}
