package call

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-modelgate/modelgate/internal/forwarding"
	"github.com/caddy-modelgate/modelgate/internal/redact"
)

// transport is Caddy's transport, but for four things.
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
//
// What comes back has the headers that callers may see and no others, before
// reverse_proxy logs them, sets placeholders by them and applies header_down.
//
// More connections to a backend are kept for the next calls: see keepConnections.
//
// It is one word, the same as that of the transport in whose place it comes: a
// health check that Caddy has begun may be reading there.
type transport struct{ *reverseproxy.HTTPTransport }

// matchedTransport is the transport where lb_retry_match looks at what has gone
// upstream: that keeps all headers but those that have the name of a credential.
type matchedTransport struct{ transport }

// smallCall is the longest body, in bytes, that is sent in one write: with its
// head it fits into net/http's buffer of 4 KiB.
const smallCall = 2 << 10

// RoundTrip implements http.RoundTripper. The request is reverse_proxy's own for
// this very trip: what a retry is made of, and the caller's, are others.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.send(req)
	req.Header = nil
	return resp, err
}

// RoundTrip implements http.RoundTripper.
func (t matchedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.send(req)
	sent := req.Header
	req.Header = make(http.Header, len(sent))
	for name, values := range sent {
		if !forwarding.Upstream.Never(name) && !redact.Name(name) { // what is there of that came from the operator
			req.Header[name] = values
		}
	}
	return resp, err
}

var errSwitched = errors.New("the backend switched to another protocol")

// send makes the trip with a copy of the request: net/http may still be sending
// that when the answer has come.
func (t transport) send(req *http.Request) (*http.Response, error) {
	sent := *req
	c, ok := caddyhttp.GetVar(req.Context(), callVar).(*call)
	if !ok {
		return t.HTTPTransport.RoundTrip(&sent) // a health check
	}
	if req.ContentLength <= smallCall {
		if unread := c.body.unread(); int64(len(unread)) == req.ContentLength {
			sent.Body = io.NopCloser(bytes.NewReader(unread))
		}
	}
	out, trip := &sent, uint32(0)
	if c.bill.price != nil {
		out, trip = c.delivery.begin(out)
	}
	resp, err := t.HTTPTransport.RoundTrip(out)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		// A call cannot ask for another protocol. Without its headers the answer would look
		// to reverse_proxy as if it had, and the caller would get the bare connection.
		resp.Body.Close()
		return nil, errSwitched
	}
	if err == nil {
		if trip != 0 {
			c.delivery.end(trip, resp)
		}
		forwarding.CleanAnswer(resp, c.block.downstream, c.block.credentials, req.Header)
	}
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
	eachHandler(routes, func(handler caddyhttp.MiddlewareHandler) {
		h, ok := handler.(*reverseproxy.Handler)
		if !ok {
			return
		}
		if t, ok := h.Transport.(*reverseproxy.HTTPTransport); ok {
			keepConnections(h, t)
			h.Transport = transport{t}
			if len(h.LoadBalancing.RetryMatch) > 0 {
				h.Transport = matchedTransport{transport{t}}
			}
		}
	})
}

// Connections to a backend that are kept when no call uses them: Caddy's default, and
// ours in its place. A model answers slowly, so a gateway has many calls under way at
// once, and each one that ends beyond this number would close its connection and have
// the next one open another (measured: a twelfth of what a call costs, with 64 at once).
const (
	caddyIdleConnections = 32
	idleConnections      = 1024
)

// keepConnections raises the number of connections that are kept, unless the operator
// has chosen another. The transport of active health checks is left alone: it is in
// use already.
func keepConnections(h *reverseproxy.Handler, t *reverseproxy.HTTPTransport) {
	checked := h.HealthChecks != nil && h.HealthChecks.Active != nil
	if !checked && t.Transport != nil && t.Transport.MaxIdleConnsPerHost == caddyIdleConnections {
		t.Transport.MaxIdleConnsPerHost = idleConnections
	}
}

// eachHandler calls visit for each handler of routes and of the routes in them.
func eachHandler(routes caddyhttp.RouteList, visit func(caddyhttp.MiddlewareHandler)) {
	for _, r := range routes {
		for _, handler := range r.Handlers {
			visit(handler)
			switch h := handler.(type) {
			case *reverseproxy.Handler:
				for _, response := range h.HandleResponse {
					eachHandler(response.Routes, visit)
				}
			case *caddyhttp.Subroute:
				eachHandler(h.Routes, visit)
			}
		}
	}
}

// credentialsOf returns the names of the headers that header_up and request_header set in
// routes. Their values belong to the operator, and may be credentials. Headers that callers
// send as well contain none.
func credentialsOf(routes caddyhttp.RouteList) (names []string) {
	repl := caddy.NewReplacer() // a name may be a placeholder
	note := func(ops *headers.HeaderOps) {
		if ops == nil {
			return
		}
		for _, fields := range []http.Header{ops.Set, ops.Add} {
			for name := range fields {
				name = http.CanonicalHeaderKey(repl.ReplaceKnown(name, ""))
				if !forwarding.Upstream.Has(name) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	eachHandler(routes, func(handler caddyhttp.MiddlewareHandler) {
		switch h := handler.(type) {
		case *reverseproxy.Handler:
			if h.Headers != nil {
				note(h.Headers.Request)
			}
		case *headers.Handler:
			note(h.Request)
		}
	})
	return names
}
