package transport

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var soak = flag.Int("soak", 3000, "the number of calls of TestNoAnswerIsMixedUp")

// TestNoAnswerIsMixedUp sends many requests of all kinds at once. Each answer repeats the id of its
// request in the head and throughout the body.
func TestNoAnswerIsMixedUp(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(w *wire) {
		for req := w.request(); req != nil; req = w.request() {
			id := req.Header.Get("Id")
			body := strings.Repeat(id+";", 1+rand.IntN(2000))
			sent, _ := io.ReadAll(req.Body)
			if string(sent) != strings.Repeat(id, len(sent)/len(id)) {
				id = "the body of " + id + " is another one"
			}
			head := "HTTP/1.1 200 OK\r\nId: " + id + "\r\n"
			switch rand.IntN(12) {
			case 0:
				return // without an answer
			case 1:
				w.send(head + "Content-Length: 99999999\r\n\r\n" + body)
				return
			case 2:
				w.send(head + "\r\n" + body)
				return
			case 3:
				w.send(head + "Connection: close\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body)
				return
			case 4:
				w.send(head + "Content-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body + "HTTP/1.1 200 OK\r\nId: stray\r\nContent-Length: 5\r\n\r\nstray")
			case 5, 6, 7:
				w.send(head + "Transfer-Encoding: chunked\r\n\r\n")
				for len(body) > 0 {
					n := 1 + rand.IntN(min(len(body), 9000))
					w.send(chunk(body[:n]))
					body = body[n:]
				}
				w.send("0\r\n\r\n")
			default:
				w.send(head + "Content-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body)
			}
		}
	})
	tr := newTransport(t)
	var next, whole atomic.Int64
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for n := next.Add(1); n <= int64(*soak); n = next.Add(1) {
				id := fmt.Sprintf("%09d", n)
				ctx, cancel := context.WithCancel(t.Context())
				req := to(t, ctx, p, "POST", "/", nil)
				req.Header.Set("Id", id)
				if rand.IntN(4) == 0 {
					req.Header.Set("Idempotency-Key", id)
				}
				m := &memory{bytes: []byte(strings.Repeat(id, 1+rand.IntN(2)*rand.IntN(20_000))), closed: make(chan struct{})}
				m.of(req)
				kind := rand.IntN(10)
				if kind == 0 {
					go cancel()
				}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					if got := resp.Header.Get("Id"); got != id {
						t.Errorf("%s received the answer of %s", id, got)
					}
					var body []byte
					switch kind {
					case 1:
						_, _ = resp.Body.Read(make([]byte, 10))
					case 2:
						go resp.Body.Close()
						fallthrough
					default:
						if body, err = io.ReadAll(resp.Body); err == nil {
							whole.Add(1)
						}
					}
					resp.Body.Close()
					if !strings.HasPrefix(strings.Repeat(id+";", len(body)/10+1), string(body)) {
						t.Errorf("%s received other bytes", id)
					}
				}
				m.poison(t)
				cancel()
			}
		})
	}
	group.Wait()
	if whole.Load() < int64(*soak)/3 {
		t.Errorf("only %d whole answers", whole.Load())
	}
}
