package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// newTLSPeer is newPeer behind TLS, and a transport that takes the short way to it.
func newTLSPeer(t *testing.T, script func(w *wire)) (*peer, *Transport) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := peerOn(t, tls.NewListener(l, &tls.Config{Certificates: server.TLS.Certificates}), script)
	return p, newTransport(t, withTLS)
}

func withTLS(tr *Transport) {
	tr.Versions = []string{"1.1"}
	tr.TLS = &reverseproxy.TLSConfig{InsecureSkipVerify: true}
}

func TestTLSConnectionsAreReused(t *testing.T) {
	t.Parallel()
	p, tr := newTLSPeer(t, answering(ok))
	for _, size := range []int{10, 20_000, 300_000, 10} {
		mustFetch(t, tr, inMemory(size).of(post(t, p, nil)), "ok")
	}
	if n := p.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestBytesHeldByTLSDropAConnection sends more than an answer. What TLS has decrypted, or read ahead,
// is not on the socket any more.
func TestBytesHeldByTLSDropAConnection(t *testing.T) {
	t.Parallel()
	const stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
	for name, sends := range map[string][]string{
		"in one record":    {ok + stray},
		"in two":           {ok, stray},
		"of no body":       {"HTTP/1.1 204 No Content\r\n\r\n" + stray},
		"behind chunks":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", stray},
		"larger than read": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok" + strings.Repeat(stray, 300)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, tr := newTLSPeer(t, func(w *wire) {
				for w.request() != nil {
					for _, s := range sends {
						w.send(s)
					}
				}
			})
			for range 5 {
				_, body, err := fetch(tr, get(t, p))
				if err != nil || body != "ok" && body != "" {
					t.Fatal(body, err)
				}
				tr.waitStale(t)
			}
			if n := p.accepted.Load(); n != 5 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

func TestTLSAnswersAreNotMixedUp(t *testing.T) {
	t.Parallel()
	p, tr := newTLSPeer(t, func(w *wire) {
		for req := w.request(); req != nil; req = w.request() {
			id := strings.Repeat(req.Header.Get("Id"), 500)
			w.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(id), id))
		}
	})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				id := fmt.Sprintf("%04d", i*100+j)
				m := inMemory([]int{10, 20_000, 100_000}[j%3])
				req := m.of(to(t, ctx, p, "POST", "/", nil))
				req.Header.Set("Id", id)
				if j%5 == 0 {
					go cancel()
				}
				_, body, err := fetch(tr, req)
				if err == nil && body != strings.Repeat(id, 500) || !strings.HasPrefix(strings.Repeat(id, 500), body) {
					t.Errorf("%s received %.20q %v", id, body, err)
				}
				m.poison(t)
				cancel()
			}
		})
	}
	group.Wait()
}

// TestTLSIsNeverLeftOut asks for an upstream without a host, which reverse_proxy does for `:8443`.
func TestTLSIsNeverLeftOut(t *testing.T) {
	t.Parallel()
	p, tr := newTLSPeer(t, answering(ok))
	req := get(t, p)
	req.URL.Host = ":8443"
	mustFetch(t, tr, req, "ok")
}
