package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func TestClosedIdleConnectionsAreNotUsed(t *testing.T) {
	t.Parallel()
	for name, finish := range map[string]func(*wire){
		"FIN":         func(*wire) {},
		"RST":         func(w *wire) { _ = w.Conn.(*net.TCPConn).SetLinger(0) },
		"unsolicited": func(w *wire) { w.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"); w.awaitEnd() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(w *wire) {
				if w.n > 1 {
					answering(ok)(w)
					return
				}
				w.request()
				w.send(ok)
				finish(w)
			})
			tr := newTransport(t)
			for range 3 {
				mustFetch(t, tr, inMemory(100).of(post(t, p, nil)), "ok")
				tr.waitStale(t)
			}
		})
	}
}

// waitStale returns when something has arrived on the idle connection, if it is the first.
func (t *Transport) waitStale(tb testing.TB) {
	tb.Helper()
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	for _, list := range t.pool.idle {
		for _, c := range list {
			deadline := time.Now().Add(200 * time.Millisecond)
			for c.quiet() && time.Now().Before(deadline) {
				runtime.Gosched()
			}
		}
	}
}

func TestWhatIsRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method   string
		key      bool
		size     int
		repeated bool
	}{
		"GET": {"GET", false, 0, true}, "POST": {"POST", false, 100, false}, "keyed POST": {"POST", true, 100, false},
		"large POST": {"POST", false, 300_000, false}, "large keyed POST": {"POST", true, 300_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen sync.Map
			p := newPeer(t, func(w *wire) {
				for i := 0; ; i++ {
					req := w.request()
					if req == nil {
						return
					}
					seen.Store(fmt.Sprint(w.n, i), true)
					if w.n == 1 && i == 1 {
						return // between the look and the answer
					}
					w.send(ok)
				}
			})
			tr := newTransport(t)
			mustFetch(t, tr, get(t, p), "ok")
			m := inMemory(c.size)
			req := to(t, t.Context(), p, c.method, "/", nil)
			if c.size > 0 {
				m.of(req)
			}
			if c.key {
				req.Header.Set("Idempotency-Key", "1")
			}
			_, body, err := fetch(tr, req)
			if (err == nil && body == "ok") != c.repeated {
				t.Error(body, err)
			}
			if c.size > 0 {
				m.poison(t)
			}
			if p.accepted.Load() > 2 {
				t.Error("more than one repetition")
			}
		})
	}
}

func TestAFreshConnectionIsNotRepeated(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(w *wire) { w.request() })
	_, _, err := fetch(newTransport(t), get(t, p))
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || p.accepted.Load() != 1 {
		t.Error(err, p.accepted.Load())
	}
}

func TestThePoolHasLimits(t *testing.T) {
	t.Parallel()
	var arrived sync.WaitGroup
	arrived.Add(4)
	ended := make(chan int, 10)
	p := newPeer(t, func(w *wire) {
		w.request()
		arrived.Done()
		arrived.Wait() // four at once
		w.send(ok)
		w.awaitEnd()
		ended <- w.n
	})
	tr := newTransport(t, func(tr *Transport) {
		tr.KeepAlive = &reverseproxy.KeepAlive{MaxIdleConnsPerHost: 3, MaxIdleConns: 2, IdleConnTimeout: caddy.Duration(300 * time.Millisecond)}
	})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { mustFetch(t, tr, get(t, p), "ok") })
	}
	group.Wait()
	tr.pool.mu.Lock()
	if tr.pool.count > 2 {
		t.Errorf("%d idle connections", tr.pool.count)
	}
	tr.pool.mu.Unlock()
	for range 4 { // two at once, two by the idle timeout
		<-ended
	}
	tr.pool.mu.Lock()
	defer tr.pool.mu.Unlock()
	if tr.pool.count != 0 || len(tr.pool.idle) != 0 || tr.pool.timer != nil {
		t.Errorf("%d idle connections, %d lists", tr.pool.count, len(tr.pool.idle))
	}
}

func TestCleanupLetsAnswersEnd(t *testing.T) {
	t.Parallel()
	more, ended := make(chan bool), make(chan bool)
	p := newPeer(t, func(w *wire) {
		w.request()
		w.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		<-more
		w.send("world")
		w.awaitEnd()
		ended <- true
	})
	tr := newTransport(t)
	resp, err := tr.RoundTrip(get(t, p))
	if err != nil {
		t.Fatal(err)
	}
	_ = tr.Cleanup()
	close(more)
	body, err := io.ReadAll(resp.Body)
	if string(body) != "helloworld" || err != nil {
		t.Error(string(body), err)
	}
	<-ended
}
