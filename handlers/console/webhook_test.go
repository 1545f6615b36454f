package console_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// waits sends the headers of a webhook and waits until the gate asks for the body,
// or refuses the webhook.
func waits(t *testing.T, g *gatetest.Gate, path, headers string) (*gatetest.Wire, gatetest.Answer) {
	t.Helper()
	wire := g.Dial(t)
	wire.Send(t, "POST "+path+" HTTP/1.1\nHost: gate\nContent-Length: 10\nExpect: 100-continue\n"+headers+"\n")
	return wire, wire.Receive(t, http.MethodPost)
}

func TestOneAddressSendsSoManyWebhooksAtOnce(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: signing, Site: site})
	a := newAccount(t, g)
	var open []*gatetest.Wire
	for i := range 32 {
		wire, answer := waits(t, g, hook, "")
		if answer.Status != http.StatusContinue {
			t.Fatalf("webhook %d is answered %d %s", i, answer.Status, answer.Body)
		}
		open = append(open, wire)
	}
	_, answer := waits(t, g, hook, "")
	refused(t, "one more", answer, 429, "RATE_LIMITED")
	if answer.Header.Get("Retry-After") == "" {
		t.Error("one more is not told when to come again")
	}

	// Other payers and users do not have to wait for them.
	o := post[order](t, a, "/api/user/demo/pay", `{"amount":"1.00"}`)
	if got := g.Do(t, "GET", "/api/user/demo/page/"+o.TradeNo, "", ""); got.Status != 200 {
		t.Errorf("a payer is answered %d %s", got.Status, got.Body)
	}

	open[0].Send(t, "0123456789")
	refused(t, "one that has come", open[0].Receive(t, http.MethodPost), 400, "INVALID_PARAMETER")
	if _, answer := waits(t, g, hook, ""); answer.Status != http.StatusContinue {
		t.Errorf("in its place one is answered %d %s", answer.Status, answer.Body)
	}
}

func TestAWebhookThatCannotBeProvedIsRefusedUnread(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: strings.Replace(app, "payment demo", `payment stripe {
		secret_key sk_test_of_nobody
		webhook_secret whsec_of_nobody
	}`, 1), Site: site})
	const path = "/api/user/stripe/webhook"
	sign := func(at time.Time) string { return fmt.Sprintf("t=%d,v1=%064x", at.Unix(), 1) }
	first := ""
	for name, headers := range map[string]string{
		"no signature":         "",
		"two":                  "Stripe-Signature: " + sign(time.Now()) + "\nStripe-Signature: " + sign(time.Now()) + "\n",
		"none that is one":     "Stripe-Signature: v1=0\n",
		"one out of time":      "Stripe-Signature: " + sign(time.Now().Add(-310*time.Second)) + "\n",
		"one before its time":  "Stripe-Signature: " + sign(time.Now().Add(310*time.Second)) + "\n",
		"one of another place": "Webhook-Signature: v1,AAAA\n",
	} {
		_, answer := waits(t, g, path, headers)
		refused(t, name, answer, 400, "INVALID_PARAMETER")
		if first == "" {
			first = answer.Body
		}
		if answer.Body != first {
			t.Errorf("%s: %s, want the same as all others: %s", name, answer.Body, first)
		}
	}
	wire, answer := waits(t, g, path, "Stripe-Signature: "+sign(time.Now())+"\n")
	if answer.Status != http.StatusContinue {
		t.Fatalf("one that may be good is answered %d %s", answer.Status, answer.Body)
	}
	wire.Send(t, "0123456789")
	refused(t, "one that is not", wire.Receive(t, http.MethodPost), 400, "INVALID_PARAMETER")
}

// counters returns the metrics of payments, by name and labels.
func counters(t *testing.T, g *gatetest.Gate) map[string]int {
	t.Helper()
	_, text := g.Admin(t, http.MethodGet, "/metrics", nil)
	counted := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "modelgate_payment_") {
			counted[name], _ = strconv.Atoi(value)
		}
	}
	return counted
}

func TestOrdersAndNoticesAreCounted(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: signing, Site: site})
	a := newAccount(t, g)
	before := counters(t, g)
	if len(before) < 10 {
		t.Errorf("at the start there are %v", before)
	}

	const pay = "/api/user/demo/pay"
	o := post[order](t, a, pay, `{"amount":"40.00","idempotency_key":"k"}`)
	post[order](t, a, pay, `{"amount":"40.00","idempotency_key":"k"}`)
	answer, _ := a.ask(t, "POST", pay, `{"amount":"0.01"}`)
	refused(t, "too little", answer, 400, "AMOUNT_OUT_OF_RANGE")
	engine, _ := gatetest.Engine(g.Store)
	engine.Plan(storagetest.LowSpace)
	answer, _ = a.ask(t, "POST", pay, `{"amount":"40.00"}`)
	refused(t, "one that the store does not take", answer, 503, "STORE_UNAVAILABLE")

	paid := paidNotice("evt", o.TradeNo, "40.00", "USD")
	send := func(id, body string) { g.Do(t, "POST", hook, signed(id, body, time.Now()), body) }
	engine.Plan(storagetest.LowSpace)
	send("evt", paid)
	send("evt", paid)
	send("evt", paid)
	send("other", paidNotice("other", o.TradeNo, "41.00", "USD"))
	send("party", `{"id":"party","type":"party"}`)
	g.Do(t, "POST", hook, "", paid)

	after := counters(t, g)
	for name, want := range map[string]int{
		`orders_total{provider="demo",result="opened"}`:      1,
		`orders_total{provider="demo",result="replayed"}`:    1,
		`orders_total{provider="demo",result="refused"}`:     1,
		`orders_total{provider="demo",result="error"}`:       1,
		`notices_total{provider="demo",result="applied"}`:    1,
		`notices_total{provider="demo",result="repeated"}`:   1,
		`notices_total{provider="demo",result="ignored"}`:    1,
		`notices_total{provider="demo",result="mismatched"}`: 1,
		`notices_total{provider="demo",result="refused"}`:    1,
		`notices_total{provider="demo",result="error"}`:      1,
	} {
		name = "modelgate_payment_" + name
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s grew by %d, want %d", name, got, want)
		}
	}
}
