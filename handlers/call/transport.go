package call

import (
	"bytes"
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// transport is Caddy's transport, but for two things.
//
// A small call goes upstream in one write, its head together with its body.
// net/http flushes the head by itself unless it sees that the body is in memory,
// and behind Caddy's wrappers it does not see that. The second write is a tenth of
// what a small call costs (measured: 1.11 × the calls per CPU-second). A call sent
// so can also be repeated, because its body is not used up.
//
// What has gone upstream keeps no headers. The operator's credential for the
// backend is among them, which reverse_proxy would write into its log with every
// answer that breaks off; and it renders them for each call, whether anything is
// logged or not (measured: 1.04 × the calls per CPU-second).
type transport struct {
	*reverseproxy.HTTPTransport
	matches bool // what has gone upstream is matched on: it keeps its headers
}

// smallCall is the longest body, in bytes, that is sent in one write: with its
// head it fits into net/http's buffer of 4 KiB.
const smallCall = 2 << 10

// RoundTrip implements http.RoundTripper. The request is reverse_proxy's own for
// this very trip: what a retry is made of, and the caller's, are others.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if c, ok := caddyhttp.GetVar(req.Context(), callVar).(*call); ok && req.ContentLength <= smallCall {
		if unread := c.body.unread(); int64(len(unread)) == req.ContentLength {
			req.Body = io.NopCloser(bytes.NewReader(unread))
		}
	}
	if t.matches {
		return t.HTTPTransport.RoundTrip(req)
	}
	sent := *req // net/http may still be sending when the answer has come
	resp, err := t.HTTPTransport.RoundTrip(&sent)
	req.Header = nil
	return resp, err
}

// unread returns the JSON if nobody has read of it; nil when it is large. A
// transport may hold on to it beyond retire, so what is in memory of a pool is
// copied.
func (b *body) unread() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.off > 0 || len(b.bytes()) > smallCall:
		return nil
	case pooled(b.buffer):
		return bytes.Clone(b.bytes())
	}
	return b.bytes()
}

// useTransport gives the transport to the reverse proxies among routes.
func useTransport(routes caddyhttp.RouteList) {
	for _, r := range routes {
		for _, handler := range r.Handlers {
			switch h := handler.(type) {
			case *reverseproxy.Handler:
				if t, ok := h.Transport.(*reverseproxy.HTTPTransport); ok {
					h.Transport = transport{t, len(h.LoadBalancing.RetryMatch) > 0}
				}
			case *caddyhttp.Subroute:
				useTransport(h.Routes)
			}
		}
	}
}
