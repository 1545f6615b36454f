package stripe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/payments"
)

// event is the envelope of Stripe's events. Its api_version is not read, because these fields are the
// same in all versions since 2019.
type event struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Type     string `json:"type"`
	Livemode *bool  `json:"livemode"`
	Account  string `json:"account"` // connected account of Stripe Connect; absent in events of the operator's account
	Data     struct {
		Object json.RawMessage `json:"object"`
	} `json:"data"`
}

// events are the events that have an effect; all others are ignored.
//
// Of the events of a dispute, only the two that report a movement of money have an effect.
// charge.dispute.created is also sent for inquiries, which withdraw no money. charge.dispute.closed
// is sent for inquiries and for lost disputes, after which no more money moves.
//
// A refund that fails later (refund.failed) is ignored. The event is rare and lacks the total. It
// returns money to the operator, who can credit it.
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
		return payments.Notice{}, errors.New("the body is not an event: its object is another")
	case !payments.IsReference(e.ID):
		return payments.Notice{}, errors.New("the event has no id of 1 to 255 printable characters")
	case e.Livemode == nil:
		return payments.Notice{}, fmt.Errorf("the event %s has no livemode", e.ID)
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

// mismatch returns why an event cannot concern this gateway, or "".
func (s *Stripe) mismatch(e event, n payments.Notice) string {
	switch {
	case *e.Livemode && !s.live:
		return "the event is of live mode, secret_key of test mode"
	case !*e.Livemode && s.live:
		return "the event is of test mode, secret_key of live mode"
	case e.Account != "":
		return "the event is of another, connected account"
	case n.TradeNo == "" && n.Payment == "":
		return "the event names neither an order of this gateway nor a payment"
	case n.TradeNo == "" && n.Kind == payments.Paid:
		return "the session was not opened for an order of this gateway"
	}
	return ""
}

// session is the known part of a Checkout Session.
type session struct {
	PaymentStatus     string            `json:"payment_status"`
	ClientReferenceID string            `json:"client_reference_id"`
	AmountTotal       *int64            `json:"amount_total"`
	Currency          string            `json:"currency"`
	PaymentIntent     string            `json:"payment_intent"`
	Metadata          map[string]string `json:"metadata"`
}

// order returns the order of the session, or "". The metadata must contain it
// too, because a payer can choose client_reference_id if the operator uses
// Payment Links.
func (s session) order() string {
	if no := tradeNo(s.Metadata); no == s.ClientReferenceID {
		return no
	}
	return ""
}

// readPaid decodes a completed session. With a delayed payment method, the
// session is completed unpaid, and a later event reports the outcome.
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
	if no == "" { // not an order of the gateway, and not paid
		return payments.Notice{Kind: payments.Ignored}, nil
	}
	return payments.Notice{Kind: payments.Failed, TradeNo: no}, nil
}

// readRefunded decodes a charge with a refund.
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

// readDispute decodes a dispute that moved money. sign is +1 if it was
// returned. The dispute does not contain the order.
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

// movement is a change of the operator's balance at Stripe.
type movement struct {
	Amount   int64  `json:"amount"` // without Stripe's fee; negative if withdrawn
	Currency string `json:"currency"`
}

// moved returns the amount of a dispute that has moved in a direction, or zero if it is not reported
// in the currency of the dispute. It can be less than the disputed amount, because earlier refunds are
// returned to the operator.
func moved(movements []movement, currency string, sign int64) (sum int64) {
	for _, m := range movements {
		if m.Currency != currency || (m.Amount < 0) != (sign < 0) {
			continue
		}
		if sum += sign * m.Amount; sum < 0 {
			return 0 // out of range
		}
	}
	return sum
}

// filled returns a notice with the fields that all objects have.
func filled(n payments.Notice, payment string, minor *int64, currency string) (payments.Notice, error) {
	if payment != "" && !payments.IsReference(payment) {
		return payments.Notice{}, errors.New("payment_intent is not an id")
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

// tradeNo returns the order in the metadata of an object, or "" if there is
// none.
func tradeNo(metadata map[string]string) string {
	if no := metadata[tradeNoKey]; payments.IsTradeNo(no) {
		return no
	}
	return ""
}
