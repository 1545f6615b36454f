package stripe

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
	"github.com/caddy-modelgate/modelgate/settings"
)

// header returns Stripe's signature header for a body that is signed at the time at.
func header(at time.Time, body, secret string) string {
	return fmt.Sprintf("t=%d,v1=%x", at.Unix(), webhook.ComputeSignature(at, []byte(body), secret))
}

// delivery returns a webhook with the given Stripe-Signature headers.
func delivery(body string, signatures ...string) payments.Webhook {
	return payments.Webhook{
		Method: http.MethodPost,
		Header: http.Header{"Stripe-Signature": signatures},
		Body:   []byte(body),
		Now:    paymentstest.Now,
	}
}

// signed returns a correctly signed webhook.
func signed(body string) payments.Webhook {
	return delivery(body, header(paymentstest.Now, body, signing))
}

const harmless = `{"id":"evt_1","object":"event","type":"customer.created","livemode":false,"data":{"object":{}}}`

func TestOnlySignedAndTimelyEventsAreRead(t *testing.T) {
	t.Parallel()
	s := provisioned(t, testKey, "")
	now := paymentstest.Now
	good := header(now, harmless, signing)
	signature := strings.TrimPrefix(good, fmt.Sprintf("t=%d,", now.Unix()))
	long := good + strings.Repeat(",v0=00", 1000)
	for _, row := range []struct {
		name    string
		headers []string
		good    bool
	}{
		{"a good signature", []string{good}, true},
		{"a good signature and that of an older secret", []string{good + ",v1=" + strings.Repeat("00", 32)}, true},
		{"a good signature after a wrong one", []string{fmt.Sprintf("t=%d,v1=%s,%s", now.Unix(), strings.Repeat("00", 32), signature)}, true},
		{"a good signature and other versions", []string{good + ",v0=abc,v2"}, true},
		{"a good signature in upper case", []string{fmt.Sprintf("t=%d,v1=%s", now.Unix(), strings.ToUpper(signature[3:]))}, true},
		{"300 seconds old", []string{header(now.Add(-300*time.Second), harmless, signing)}, true},
		{"301 seconds old", []string{header(now.Add(-301*time.Second), harmless, signing)}, false},
		{"300 seconds ahead", []string{header(now.Add(300*time.Second), harmless, signing)}, true},
		{"301 seconds ahead", []string{header(now.Add(301*time.Second), harmless, signing)}, false},
		{"another secret", []string{header(now, harmless, "whsec_other")}, false},
		{"an empty secret", []string{header(now, harmless, "")}, false},
		{"another body", []string{header(now, harmless+" ", signing)}, false},
		{"another time than was signed", []string{fmt.Sprintf("t=%d,%s", now.Unix()+1, signature)}, false},
		{"no header", nil, false},
		{"an empty header", []string{""}, false},
		{"two headers", []string{good, good}, false},
		{"no time", []string{signature}, false},
		{"two times", []string{fmt.Sprintf("t=%d,%s", now.Unix()-9999, good)}, false},
		{"a negative time", []string{"t=-1," + signature}, false},
		{"a time with a sign", []string{"t=+" + good[2:]}, false},
		{"a time out of range", []string{"t=99999999999999999999," + signature}, false},
		{"a time that overflows", []string{"t=9223372036854775807," + signature}, false},
		{"no signature", []string{fmt.Sprintf("t=%d", now.Unix())}, false},
		{"a signature of another version", []string{strings.Replace(good, "v1=", "v0=", 1)}, false},
		{"an empty signature", []string{fmt.Sprintf("t=%d,v1=", now.Unix())}, false},
		{"half a signature", []string{good[:len(good)-32]}, false},
		{"a signature that is not hexadecimal", []string{good + ",v1=xyz"}, false},
		{"more signatures than Stripe sends", []string{good + strings.Repeat(",v1=00", maxSignatures)}, false},
		{"a header that is too long", []string{long}, false},
	} {
		_, err := s.Read(delivery(harmless, row.headers...))
		if row.good && err != nil || !row.good && !errors.Is(err, payments.ErrSignature) {
			t.Errorf("%s: %v", row.name, err)
		}
		if err != nil && (strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), hex.EncodeToString(webhook.ComputeSignature(now, []byte(harmless), signing)))) {
			t.Errorf("%s: the error contains the secret or the signature: %v", row.name, err)
		}
	}
}

func TestWithoutASecretNothingIsRead(t *testing.T) {
	t.Parallel()
	_, err := new(Stripe).Read(delivery(harmless, header(paymentstest.Now, harmless, "")))
	if !errors.Is(err, payments.ErrSignature) {
		t.Errorf("got %v", err)
	}
}

// stripeEvent returns an event of test mode with an object.
func stripeEvent(kind, object string) string {
	return fmt.Sprintf(`{"id":"evt_1","object":"event","api_version":"2026-01-28.clover","type":%q,"livemode":false,"data":{"object":%s}}`, kind, object)
}

// Objects as Stripe sends them, with the fields that are read and some others.
const (
	sessionObject = `{"id":"cs_1","object":"checkout.session","amount_total":990,"currency":"usd","client_reference_id":"` + paymentstest.TradeNo +
		`","metadata":{"trade_no":"` + paymentstest.TradeNo + `"},"payment_intent":"pi_1","payment_status":"paid","status":"complete","customer_details":{"email":"a@example.com"}}`
	chargeObject = `{"id":"ch_1","object":"charge","amount":990,"amount_refunded":340,"currency":"usd","metadata":{"trade_no":"` + paymentstest.TradeNo +
		`"},"payment_intent":"pi_1","refunded":false,"refunds":null}`
	disputeObject = `{"id":"dp_1","object":"dispute","amount":990,"currency":"usd","charge":"ch_1","payment_intent":"pi_1","metadata":{},"status":"needs_response","balance_transactions":[]}`
)

func with(object string, changes ...string) string {
	changed := strings.NewReplacer(changes...).Replace(object)
	if changed == object {
		panic("with changes nothing in " + object)
	}
	return changed
}

func TestEventsBecomeNotices(t *testing.T) {
	t.Parallel()
	s := provisioned(t, testKey, "")
	amount := paymentstest.Amount
	paid := payments.Notice{Kind: payments.Paid, TradeNo: paymentstest.TradeNo, Payment: "pi_1", Amount: amount("9.90"), Currency: "USD"}
	failed := payments.Notice{Kind: payments.Failed, TradeNo: paymentstest.TradeNo}
	refunded := payments.Notice{Kind: payments.Refunded, TradeNo: paymentstest.TradeNo, Payment: "pi_1", Amount: amount("3.40"), Currency: "USD"}
	disputed := payments.Notice{Kind: payments.Disputed, Payment: "pi_1", Dispute: "dp_1", Amount: amount("9.90"), Currency: "USD"}
	restored := disputed
	restored.Kind = payments.Restored
	ignored := payments.Notice{Kind: payments.Ignored}
	change := func(n payments.Notice, f func(*payments.Notice)) payments.Notice {
		f(&n)
		return n
	}
	const taken = `"balance_transactions":[{"amount":-990,"fee":1500,"net":-2490,"currency":"usd"}`
	foreign := with(sessionObject, `"trade_no":"`+paymentstest.TradeNo+`"`, `"shop":"elsewhere"`)

	for _, row := range []struct {
		name, event, object string
		want                payments.Notice
	}{
		{"a session that is paid", "checkout.session.completed", sessionObject, paid},
		{"a session that will be paid later", "checkout.session.completed", with(sessionObject, `"paid"`, `"unpaid"`), ignored},
		{"a session that costs nothing", "checkout.session.completed", with(sessionObject, `"paid"`, `"no_payment_required"`), ignored},
		{"a session without a payment status", "checkout.session.completed", with(sessionObject, `"payment_status":"paid",`, ``), ignored},
		{"a session with a delayed payment", "checkout.session.async_payment_succeeded", sessionObject, paid},
		{"a session with a failed payment", "checkout.session.async_payment_failed", with(sessionObject, `"paid"`, `"unpaid"`), failed},
		{"a session that expired", "checkout.session.expired", with(sessionObject, `"paid"`, `"unpaid"`, `"pi_1"`, `null`), failed},
		{"a session in yen", "checkout.session.completed", with(sessionObject, `"usd"`, `"jpy"`), change(paid, func(n *payments.Notice) { n.Amount, n.Currency = amount("990"), "JPY" })},
		{"the session of another shop", "checkout.session.completed", foreign, change(paid, func(n *payments.Notice) {
			n.TradeNo, n.Mismatch = "", "the session was not opened for an order of this gateway"
		})},
		{"the expired session of another shop", "checkout.session.expired", foreign, ignored},
		{
			"a payment link with an order from the payer", "checkout.session.completed",
			with(sessionObject, `"metadata":{"trade_no":"`+paymentstest.TradeNo+`"}`, `"metadata":null`),
			change(paid, func(n *payments.Notice) {
				n.TradeNo, n.Mismatch = "", "the session was not opened for an order of this gateway"
			}),
		},
		{
			"a session with two different orders", "checkout.session.completed",
			with(sessionObject, `"client_reference_id":"0`, `"client_reference_id":"1`),
			change(paid, func(n *payments.Notice) {
				n.TradeNo, n.Mismatch = "", "the session was not opened for an order of this gateway"
			}),
		},
		{"a refund", "charge.refunded", chargeObject, refunded},
		{"a refund of a charge without metadata", "charge.refunded", with(chargeObject, `"trade_no"`, `"x"`), change(refunded, func(n *payments.Notice) { n.TradeNo = "" })},
		{
			"a refund without an order and a payment", "charge.refunded", with(chargeObject, `"trade_no"`, `"x"`, `"pi_1"`, `null`),
			change(refunded, func(n *payments.Notice) {
				n.TradeNo, n.Payment, n.Mismatch = "", "", "the event names neither an order of this gateway nor a payment"
			}),
		},
		{"a dispute that withdrew money", "charge.dispute.funds_withdrawn", disputeObject, disputed},
		{"a dispute that withdrew the whole amount", "charge.dispute.funds_withdrawn", with(disputeObject, `"balance_transactions":[`, taken), disputed},
		{"a dispute with a movement in another currency", "charge.dispute.funds_withdrawn", with(disputeObject, `"balance_transactions":[`, with(taken, "usd", "eur")), disputed},
		{"a dispute whose money was returned", "charge.dispute.funds_reinstated", with(disputeObject, `"balance_transactions":[`, taken+`,{"amount":990,"currency":"usd"}`), restored},
		{
			"a dispute whose money was returned in part", "charge.dispute.funds_reinstated",
			with(disputeObject, `"balance_transactions":[`, taken+`,{"amount":340,"currency":"usd"}`),
			change(restored, func(n *payments.Notice) { n.Amount = amount("3.40") }),
		},
		{"a dispute with an impossible movement", "charge.dispute.funds_withdrawn", with(disputeObject, `"balance_transactions":[`, with(taken, `-990`, `-9223372036854775808`)), disputed},
		{
			"a dispute whose movements overflow", "charge.dispute.funds_withdrawn",
			with(disputeObject, `"balance_transactions":[`, with(taken, `-990`, `-9223372036854775807`)+`,{"amount":-9223372036854775807,"currency":"usd"},{"amount":-100,"currency":"usd"}`),
			disputed,
		},
		{"an inquiry", "charge.dispute.created", disputeObject, ignored},
		{"the end of a dispute", "charge.dispute.closed", disputeObject, ignored},
		{"an unknown event", "checkout.session.teleported", `[]`, ignored},
	} {
		got, err := s.Read(signed(stripeEvent(row.event, row.object)))
		row.want.Event = "evt_1"
		if err != nil || got != row.want {
			t.Errorf("%s:\n got %+v (%v)\nwant %+v", row.name, got, err, row.want)
		}
		paymentstest.CheckNotice(t, got)
	}
}

func TestEventsOfTheOtherModeOrAccountCreditNothing(t *testing.T) {
	t.Parallel()
	event := stripeEvent("checkout.session.completed", sessionObject)
	live := with(event, `"livemode":false`, `"livemode":true`)
	connected := with(event, `"livemode":false`, `"livemode":false,"account":"acct_1"`)
	for _, row := range []struct {
		key   string
		event string
		want  string
	}{
		{testKey, event, ""},
		{testKey, live, "the event is of live mode, secret_key of test mode"},
		{liveKey, live, ""},
		{liveKey, event, "the event is of test mode, secret_key of live mode"},
		{"rk_live_hush", event, "the event is of test mode, secret_key of live mode"},
		{"rk_test_hush", event, ""},
		{testKey, connected, "the event is of another, connected account"},
	} {
		n, err := provisioned(t, settings.Secret(row.key), "").Read(signed(row.event))
		if err != nil || n.Mismatch != row.want {
			t.Errorf("%s: got %q (%v), want %q", row.key[:8], n.Mismatch, err, row.want)
		}
		if n.Kind != payments.Paid || n.TradeNo != paymentstest.TradeNo {
			t.Errorf("%s: the notice has no kind or no order: %+v", row.key[:8], n)
		}
	}
}

func TestSignedInvalidBodiesAreNotSignatureErrors(t *testing.T) {
	t.Parallel()
	s := provisioned(t, testKey, "")
	event := stripeEvent("checkout.session.completed", sessionObject)
	refund := stripeEvent("charge.refunded", chargeObject)
	dispute := stripeEvent("charge.dispute.funds_withdrawn", disputeObject)
	for name, body := range map[string]string{
		"an empty body":                  ``,
		"a body that is not JSON":        `paid`,
		"two values":                     event + event,
		"an array":                       `[` + event + `]`,
		"null":                           `null`,
		"a thin event":                   with(event, `"object":"event"`, `"object":"v2.core.event"`),
		"an event without id":            with(event, `"id":"evt_1",`, ``),
		"an id that is too long":         with(event, `evt_1`, strings.Repeat("x", 256)),
		"an id with a line break":        with(event, `evt_1`, `evt\n1`),
		"an event without livemode":      with(event, `"livemode":false,`, ``),
		"a livemode that is a word":      with(event, `"livemode":false`, `"livemode":"false"`),
		"text after the event":           event + ` x`,
		"no object":                      with(refund, chargeObject, `null`),
		"an amount with a fraction":      with(event, `990`, `990.5`),
		"an amount that is a word":       with(event, `990`, `"990"`),
		"an amount out of range":         with(event, `990`, `9223372036854775807`),
		"an amount beyond integers":      with(event, `990`, `1e30`),
		"no amount":                      with(event, `"amount_total":990,`, ``),
		"an amount of zero":              with(event, `990`, `0`),
		"a negative amount":              with(event, `990`, `-990`),
		"no currency":                    with(event, `"usd"`, `null`),
		"an invalid currency":            with(event, `"usd"`, `"dollars"`),
		"a payment that is an object":    with(event, `"pi_1"`, `{"id":"pi_1"}`),
		"a payment that is too long":     with(event, `pi_1`, strings.Repeat("x", 256)),
		"metadata that is a list":        with(event, `{"trade_no":"`+paymentstest.TradeNo+`"}`, `[]`),
		"a refund of zero":               with(refund, `340`, `0`),
		"a refund without an amount":     with(refund, `"amount_refunded":340,`, ``),
		"a dispute without id":           with(dispute, `"dp_1"`, `null`),
		"a dispute of a negative amount": with(dispute, `990`, `-1`),
		"a dispute without an amount":    with(dispute, `"amount":990,`, ``),
		"movements that are text":        with(dispute, `[]`, `["txn_1"]`),
	} {
		n, err := s.Read(signed(body))
		if err == nil || errors.Is(err, payments.ErrSignature) {
			t.Errorf("%s: got %+v, %v", name, n, err)
		}
		if err != nil && len(err.Error()) > 600 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

// FuzzSignature checks that a header made without the secret is refused.
func FuzzSignature(f *testing.F) {
	f.Add("t=1800000000,v1=00")
	f.Add("t=1800000000,v1=" + strings.Repeat("0a", 32) + ",v0=x")
	f.Add("t=,v1=,,=,t")
	s := provisioned(f, testKey, "")
	f.Fuzz(func(t *testing.T, header string) {
		if _, err := s.Read(delivery(harmless, header)); !errors.Is(err, payments.ErrSignature) {
			t.Errorf("%q: %v", header, err)
		}
	})
}

// FuzzEvent checks the notices for any correctly signed body.
func FuzzEvent(f *testing.F) {
	f.Add(stripeEvent("checkout.session.completed", sessionObject))
	f.Add(stripeEvent("charge.refunded", chargeObject))
	f.Add(stripeEvent("charge.dispute.funds_reinstated", with(disputeObject, "[]", `[{"amount":5,"currency":"usd"}]`)))
	f.Add(harmless)
	s := provisioned(f, testKey, "")
	f.Fuzz(func(t *testing.T, body string) {
		n, err := s.Read(signed(body))
		if errors.Is(err, payments.ErrSignature) {
			t.Errorf("the signature of %q is refused: %v", body, err)
		}
		if err == nil {
			paymentstest.CheckNotice(t, n)
		}
	})
}
