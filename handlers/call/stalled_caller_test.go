package call_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// stalledCaller makes a call over HTTP/2, reads nothing of its answer beyond a window of 16 KiB, and
// disconnects when leave is called.
func stalledCaller(t *testing.T, g *gatetest.Gate, path, key, body string) (leave func()) {
	t.Helper()
	send, cancel := overH2(t, g, &http.Transport{HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10}}, path, key, body)
	resp, err := send()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		cancel()
		resp.Body.Close()
	}
}

// longStream returns a backend that sends events with 300 KB of text after the first one, and a channel
// that it closes when all is sent.
func longStream(events []string, delta string) (script http.HandlerFunc, sent chan struct{}) {
	sent = make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		gatetest.Stream(events[0])(w, r)
		for range 2000 {
			gatetest.Send(w, delta)
		}
		portions(events[1:]...)(w, r)
		close(sent)
	}, sent
}

// TestAnAnswerThatHasArrivedIsChargedAlthoughItsCallerStalled disconnects callers that have read only the
// beginning of an answer. The backend had sent all of it, so the operator pays for all of it.
func TestAnAnswerThatHasArrivedIsChargedAlthoughItsCallerStalled(t *testing.T) {
	for name, site := range map[string]string{
		"http":      gatetest.Proxied,
		"modelgate": "modelgate_messages {\n reverse_proxy BACKEND {\n transport modelgate\n }\n}\nmodelgate_openai {\n reverse_proxy BACKEND {\n transport modelgate\n }\n}",
	} {
		for path, c := range map[string]struct {
			first, delta string
			rest         []string
			cost         money.Amount
		}{
			messages: {strings.Join(messageEvents[:3], ""), messageEvents[3], messageEvents[4:], 25 + 15*10},
			chat:     {chatChunks[0], chatChunks[1], []string{chatChunks[2], usageChunk, doneChunk}, 7 + 2*10},
		} {
			t.Run(name+" "+path, func(t *testing.T) {
				g := gatetest.Start(t, gatetest.Config{Global: overHTTP2, App: prices, Site: site})
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				script, sent := longStream(append([]string{c.first}, c.rest...), c.delta)
				g.Backend.On("priced", script)
				leave := stalledCaller(t, g, path, key.Secret, bodyFor(path, "priced", streamed))
				within(t, gatetest.Timeout, "the end of the answer", sent)
				<-time.After(200 * time.Millisecond) // a caller that does not read for less is not slow
				leave()
				if line := g.CallLineOf(t, "priced"); line.Text("rule") != "cancel" || line.Text("usage") != "reported" || line.Text("cost") != c.cost.String() {
					t.Errorf("logged %v, want a cost of %v", line, c.cost)
				}
				awaitDetached(t, 0)
				g.WalletAtRest(t, key.UserID)
				g.Verify(t)
			})
		}
	}
}
