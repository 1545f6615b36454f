package e2e

import (
	"context"
	"net/http"
	"regexp"
	"testing"
	"time"
)

// soon is the longest time until a backend must notice that its caller has
// disconnected.
const soon = time.Second

func TestABackendNoticesThatTheClientDisconnects(t *testing.T) {
	t.Parallel()
	silence := func(_ *scriptWriter, a *recordedRequest) { <-a.Gone }
	for _, c := range []struct {
		name   string
		serve  script // ends when the gateway has disconnected
		stream bool
	}{
		{"before the headers", silence, false},
		{"before the headers of a stream", silence, true},
		{"in the middle of JSON", func(s *scriptWriter, a *recordedRequest) {
			s.writeHeader(http.StatusOK, "Content-Type", "application/json", "Content-Length", "1000")
			s.write(`{"id":`)
			<-a.Gone
		}, false},
		{"in a silent stream", func(s *scriptWriter, a *recordedRequest) {
			s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream")
			s.write(messageEvents[0])
			<-a.Gone
		}, true},
		{"in the middle of an event", func(s *scriptWriter, a *recordedRequest) {
			s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream")
			s.write("event: content_block_delta\ndata: {")
			<-a.Gone
		}, true},
		{"in a busy stream", func(s *scriptWriter, a *recordedRequest) {
			s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream")
			for {
				select {
				case <-a.Gone:
					return
				default:
					s.write(messageEvents[2])
				}
			}
		}, true},
	} {
		for _, how := range []struct{ name, option string }{
			{"plainly", ""}, {"flushed", "flush_interval -1"}, {"buffered", "request_buffers 1MiB"},
		} {
			t.Run(c.name+" "+how.name, func(t *testing.T) {
				t.Parallel()
				b := newBackend(t, c.serve)
				proxy := "reverse_proxy " + b.address() + " {\n" + how.option + "\n}"
				g := running(t, site{Messages: proxy, Completions: proxy}, b)
				for _, path := range []string{"/v1/messages", "/v1/chat/completions", "/v1/responses"} {
					body := callBodies[path]
					if c.stream {
						body = streamBodies[path]
					}
					for _, p := range []protocol{http1, http2} {
						disconnect(t, g, b, p, path, body)
					}
				}
			})
		}
	}
}

// disconnect makes a call, disconnects while the backend is answering, and waits
// until the backend notices.
func disconnect(t *testing.T, g *gateway, b *backend, p protocol, path, body string) {
	t.Helper()
	transport := newTransport(p)
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := transport.RoundTrip(g.request(ctx, path, body, g.bearer()...))
		if err != nil {
			return
		}
		defer resp.Body.Close()
		_, _ = resp.Body.Read(make([]byte, 1)) // part of the answer has arrived
		<-ctx.Done()
	}()
	a := b.next()
	disconnected := time.Now()
	cancel()
	receive(t, a.Gone, string(p)+" "+path+": the end of the backend's call")
	if took := time.Since(disconnected); took > soon {
		t.Errorf("%s %s: the backend noticed the disconnection after %s", p, path, took)
	}
	receive(t, ended, "the end of the client's call")
}

// detachedMetric is the metric of one call that continues without its client.
var detachedMetric = regexp.MustCompile(`modelgate_detached\{[^}]*\} 1\n`)

// TestACallWithoutItsClientEndsWithTheProcess: calls continue without their
// clients when the process is stopped, which charges what is known, or killed,
// after which the ledger must be consistent.
func TestACallWithoutItsClientEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(map[bool]string{false: "in order", true: "by a kill"}[killed], func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, func(_ *scriptWriter, a *recordedRequest) { <-a.Gone })
			g := running(t, priced(b, ""), b)
			c := g.newGatewayUser("leaver")
			c.credit("100.00")
			k := &scriptedCall{path: "/v1/messages", model: "m-1", maxTokens: 100, prompt: "Tell me a story."}
			transport := newTransport(http1)
			defer transport.CloseIdleConnections()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				resp, err := transport.RoundTrip(g.request(ctx, k.path, k.request(), "Authorization", "Bearer "+c.key))
				if err == nil {
					resp.Body.Close()
				}
			}()
			a := b.next()
			leave()
			receive(t, ended, "the end of the client's call")
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(waitLimit); ; <-tick.C {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.Admin+"/metrics", nil)
				if err != nil {
					t.Fatal(err)
				}
				text, err := g.admin(req)
				if err == nil && detachedMetric.Match(text) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the call does not continue (%v)", err)
				}
			}

			cost := nano(0) // a crash loses the last seconds
			if killed {
				g.process.kill()
			} else {
				cost = prices[k.model].of(tokens{Input: third(int64(len(k.prompt)))})
				g.process.terminate()
				if code := g.process.code(waitLimit); code != 0 {
					t.Errorf("exit code %d", code)
				}
				g.process.await(`"rule":"finish_shutdown"`)
			}
			receive(t, a.Gone, "the end of the backend's call")
			g.start()
			g.verify()
			if w := g.wallet("leaver"); w.Balance != 100*unit-cost || w.Reserved != 0 {
				t.Errorf("the wallet is %+v, the call should have cost %v", w, cost)
			}
		})
	}
}
