package call_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// This file has what calls with fallbacks reserve and are charged.

func TestACallThatIsChargedItsInputHasNoFallback(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices + "charge_failed_input", Site: fallbackSite("fallback first second on broken timeout 503", "reverse_proxy BACKEND")})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	g.Backend.On("first", gatetest.Reset)
	got := post(t, g, messages, key.Secret, "first", "")
	if line := g.CallLine(t, got.RequestID()); got.Status != 503 || line.Text("rule") != "failed_input" || line.Text("model") != "first" || line.Text("cost") == "0.00" {
		t.Errorf("answered %d, logged %v", got.Status, line)
	}
	g.Backend.On("first", status(503)) // refused: free in any case
	g.Backend.On("second", gatetest.JSON(200, messageAnswer))
	if got := post(t, g, messages, key.Secret, "first", ""); got.Status != 200 {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, key.UserID)
	g.Verify(t)
}

func TestTheReservationCoversTheMostExpensiveFallback(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: fallbackSite("fallback first second third on 503", "reverse_proxy BACKEND")})
	body := bodyFor(messages, "first", "")
	most := money.Amount(10*((len(body)+2)/3) + 100*64)
	g.Backend.On("first", status(503))
	g.Backend.On("second", gatetest.JSON(200, messageAnswer))
	poor := g.NewKey(t, nil)
	g.Credit(t, poor.UserID, "0.40")
	if got := post(t, g, messages, poor.Secret, "first", ""); got.Status != 402 { // third costs 0.5
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	scoped := g.NewKey(t, map[string]any{"models": []string{"first", "second"}}) // third is left out
	g.Credit(t, scoped.UserID, (most - 1).String())
	got := post(t, g, messages, scoped.Secret, "first", "")
	if got.Status != 402 || !strings.Contains(got.Body, "a max_tokens of at most 63 would fit") {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	g.Credit(t, scoped.UserID, amount(t, "0.000000001").String())
	if got := post(t, g, messages, scoped.Secret, "first", ""); got.Status != 200 {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	narrow := g.NewKey(t, map[string]any{"models": []string{"first"}})
	g.Credit(t, narrow.UserID, "1.00")
	if got := post(t, g, messages, narrow.Secret, "first", ""); got.Status != 503 {
		t.Errorf("a key that may not use the fallbacks: answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, scoped.UserID)
	g.Verify(t)
}

func TestACallerWhoDisconnectsBetweenAttemptsPaysNothing(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: fallbackPrices, Site: fallbackSite("fallback first second on 503 timeout broken", "modelgate_test_heads\nreverse_proxy BACKEND")})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	ctx, leave := context.WithCancel(t.Context())
	g.Backend.On("first", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(503)
		gatetest.Send(w, "x")
		<-headWritten // the gateway has seen the status
		leave()
		<-r.Context().Done()
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL(messages), strings.NewReader(bodyFor(messages, "first", "")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Api-Key": {key.Secret}, "Anthropic-Version": {"2023-06-01"}, "Content-Type": {"application/json"}}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	line := g.CallLineOf(t, "first")
	if line.Text("ended") != "client_gone" || line.Text("usage") != "none" || len(g.Backend.Seen("second")) != 0 {
		t.Errorf("logged %v", line)
	}
	if w := g.WalletAtRest(t, key.UserID); w.Balance != amount(t, "1") {
		t.Errorf("the balance is %v", w.Balance)
	}
	g.Verify(t)
}
