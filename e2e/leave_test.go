package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// soon is how quickly a backend must hear that its caller has left.
const soon = time.Second

func TestABackendHearsOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	silence := func(_ *stage, a *ask) { <-a.Gone }
	for _, c := range []struct {
		name   string
		play   script // ends when the gateway has hung up
		stream bool
	}{
		{"before the head", silence, false},
		{"before the head of a stream", silence, true},
		{"in the middle of JSON", func(s *stage, a *ask) {
			s.head(http.StatusOK, "Content-Type", "application/json", "Content-Length", "1000")
			s.say(`{"id":`)
			<-a.Gone
		}, false},
		{"in a silent stream", func(s *stage, a *ask) {
			s.head(http.StatusOK, "Content-Type", "text/event-stream")
			s.say(messageEvents[0])
			<-a.Gone
		}, true},
		{"in the middle of an event", func(s *stage, a *ask) {
			s.head(http.StatusOK, "Content-Type", "text/event-stream")
			s.say("event: content_block_delta\ndata: {")
			<-a.Gone
		}, true},
		{"in a busy stream", func(s *stage, a *ask) {
			s.head(http.StatusOK, "Content-Type", "text/event-stream")
			for {
				select {
				case <-a.Gone:
					return
				default:
					s.say(messageEvents[2])
				}
			}
		}, true},
	} {
		for _, how := range []struct{ name, option string }{
			{"plainly", ""}, {"flushed", "flush_interval -1"}, {"buffered", "request_buffers 1MiB"},
		} {
			t.Run(c.name+" "+how.name, func(t *testing.T) {
				t.Parallel()
				b := newBackend(t, c.play)
				proxy := "reverse_proxy " + b.address() + " {\n" + how.option + "\n}"
				g := running(t, site{Messages: proxy, Completions: proxy}, b)
				for path, body := range map[string]string{"/v1/messages": callBodies["/v1/messages"], "/v1/chat/completions": callBodies["/v1/chat/completions"]} {
					if c.stream {
						body = streamBodies[path]
					}
					for _, p := range []protocol{http1, http2} {
						leave(t, g, b, p, path, body)
					}
				}
			})
		}
	}
}

// leave makes a call, gives it up once the backend is at it, and waits for the
// backend to hear of it.
func leave(t *testing.T, g *gateway, b *backend, p protocol, path, body string) {
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
		_, _ = resp.Body.Read(make([]byte, 1)) // something has come through
		<-ctx.Done()
	}()
	a := b.next()
	left := time.Now()
	cancel()
	receive(t, a.Gone, string(p)+" "+path+": the end of the backend's call")
	if took := time.Since(left); took > soon {
		t.Errorf("%s %s: the backend heard of it after %s", p, path, took)
	}
	receive(t, ended, "the end of the client's call")
}
