package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// waits sends the head of a webhook and waits until the gate asks for the body,
// or refuses it without.
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

	// Nobody else has to wait for them: neither payers nor customers.
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
