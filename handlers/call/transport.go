package call

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-modelgate/modelgate/internal/forwarding"
	"github.com/caddy-modelgate/modelgate/internal/redact"
	"github.com/caddy-modelgate/modelgate/transport"
)

// A call is sent by Caddy's transport or by that of package transport, with six changes.
//
// Each attempt sends the whole body, whatever an earlier one has read of it. So lb_retry_match
// needs no request_buffers.
//
// A small call goes upstream in one write, its head together with its body. net/http
// flushes the head alone unless it sees that the body is in memory. Caddy's wrappers
// hide that. The second write takes a tenth of the cost of a small call (measured:
// 1.11 × the calls per CPU-second). Such a call can also be repeated, because its
// body is still in memory.
//
// A request that was sent keeps no headers. They contain the operator's credential for the
// backend, which reverse_proxy would write into its log whenever an answer ends early. It
// also renders them for each call, whether it logs or not (measured: 1.04 × the calls per
// CPU-second).
//
// An answer only keeps the headers that callers may see. The others are removed before
// reverse_proxy logs the headers, sets placeholders from them and applies header_down.
//
// Caddy's Via is not sent to the backend.
//
// More connections to a backend are kept for the next calls: see keepConnections.
//
// Each wrapper has one field, so it is the same machine word as the transport that it replaces. A
// health check that Caddy has started may read that word concurrently.
type (
	caddysTransport struct{ *reverseproxy.HTTPTransport }
	ownTransport    struct{ *transport.Transport }
)

// The wrappers if lb_retry_match reads the request that was sent. They keep all headers except those
// with the name of a credential.
type (
	caddysMatched struct{ *reverseproxy.HTTPTransport }
	ownMatched    struct{ *transport.Transport }
)

// smallCall is the maximum length of a body that is sent in one write, in bytes. With its
// head it fits into net/http's buffer of 4 KiB.
const smallCall = 2 << 10

// RoundTrip implements http.RoundTripper.
func (t caddysTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return forget(req, t.HTTPTransport)
}

// RoundTrip implements http.RoundTripper.
func (t ownTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return forget(req, t.Transport)
}

// RoundTrip implements http.RoundTripper.
func (t caddysMatched) RoundTrip(req *http.Request) (*http.Response, error) {
	return keepShown(req, t.HTTPTransport)
}

// RoundTrip implements http.RoundTripper.
func (t ownMatched) RoundTrip(req *http.Request) (*http.Response, error) {
	return keepShown(req, t.Transport)
}

// forget sends a request and removes its headers. It may change the request: reverse_proxy makes a
// new one for each attempt, and the caller's request is another one.
func forget(req *http.Request, t http.RoundTripper) (*http.Response, error) {
	resp, err := send(req, t)
	req.Header = nil
	return resp, err
}

// keepShown sends a request and removes the headers that may contain credentials.
func keepShown(req *http.Request, t http.RoundTripper) (*http.Response, error) {
	resp, err := send(req, t)
	sent := req.Header
	req.Header = make(http.Header, len(sent))
	for name, values := range sent {
		if !forwarding.Upstream.Never(name) && !redact.Name(name) { // such headers come from the operator
			req.Header[name] = values
		}
	}
	return resp, err
}

var errSwitched = errors.New("the backend switched to another protocol")

// send sends a copy of the request, because net/http may still be sending when the answer
// arrives.
func send(req *http.Request, t http.RoundTripper) (*http.Response, error) {
	sent := *req
	c, ok := caddyhttp.GetVar(req.Context(), callVar).(*call)
	if !ok {
		return t.RoundTrip(&sent) // a health check
	}
	if dial, ok := reverseproxy.GetDialInfo(req.Context()); ok {
		c.backend = dial.Address
	}
	// Vendors must not see that a gateway sends the call. A value that the operator sets
	// is kept. Retries share the headers with an attempt that may still be sending, so they must
	// not delete again.
	if via := req.Header["Via"]; len(via) == 1 && strings.HasSuffix(via[0], " Caddy") {
		delete(req.Header, "Via")
	}
	if c.body.isBodyOf(req) {
		c.body.attach(&sent, t)
	}
	out, trip := &sent, uint32(0)
	if c.bill.price != nil || c.fallbacks.named != nil {
		out, trip = c.delivery.begin(out)
	}
	resp, err := t.RoundTrip(out)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		// A call cannot ask for another protocol. Without this check reverse_proxy would
		// give the raw connection to the caller.
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

// attach makes an attempt send the whole body, by a reader of its own.
func (b *body) attach(sent *http.Request, t http.RoundTripper) {
	if _, ok := t.(*reverseproxy.HTTPTransport); ok && len(b.bytes()) <= smallCall {
		// net/http only knows that the body is in memory if it knows the type. It may use the
		// bytes after retire, so a buffer of a pool is copied.
		json := b.bytes()
		if pooled(b.buffer) {
			json = bytes.Clone(json)
		}
		sent.Body = io.NopCloser(bytes.NewReader(json))
		return
	}
	sent.Body = b.newReader()
	sent.GetBody = func() (io.ReadCloser, error) { return b.newReader(), nil }
}

// useTransport sets the transport of the reverse proxies in routes.
func useTransport(routes caddyhttp.RouteList) {
	eachHandler(routes, func(handler caddyhttp.MiddlewareHandler) {
		h, ok := handler.(*reverseproxy.Handler)
		if !ok {
			return
		}
		matched := len(h.LoadBalancing.RetryMatch) > 0
		switch t := h.Transport.(type) {
		case *reverseproxy.HTTPTransport:
			keepConnections(h, t)
			h.Transport = caddysTransport{t}
			if matched {
				h.Transport = caddysMatched{t}
			}
		case *transport.Transport:
			keepConnections(h, &t.HTTPTransport)
			h.Transport = ownTransport{t}
			if matched {
				h.Transport = ownMatched{t}
			}
		}
	})
}

// The maximum number of idle connections to a backend: Caddy's default, and that of the
// gateway. A model answers slowly, so many calls run at the same time. Beyond this number each
// call would close its connection, and the next one would open another. That is a twelfth of
// the cost of a call (measured with 64 concurrent calls).
const (
	caddyIdleConnections = 32
	idleConnections      = 1024
)

// keepConnections raises the number of idle connections, unless the operator configured
// another. It does not change a transport with active health checks, which is in use already.
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
				if !forwarding.Upstream.Has(name) && !slices.Contains(forwarding.CallerHeaders, name) && !slices.Contains(names, name) {
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
