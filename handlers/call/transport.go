package call

import (
	"bytes"
	"encoding/json"
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
)

// callTransport sends calls by Caddy's transport, or by that of package transport, with six changes.
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
// More connections to a backend are kept for the next calls: see idleConnections.
type callTransport struct {
	// TransportRaw is the configuration of the transport that sends. Its default is that of `http`.
	TransportRaw json.RawMessage `json:"transport,omitempty" caddy:"namespace=http.reverse_proxy.transport inline_key=protocol"`

	// Matched says that lb_retry_match reads the requests that were sent. They keep all headers
	// except those with the name of a credential.
	Matched bool `json:"matched,omitempty"`

	*reverseproxy.HTTPTransport `json:"-"` // for the interfaces that reverse_proxy asks for

	sender http.RoundTripper
}

// smallCall is the maximum length of a body that is sent in one write, in bytes. With its
// head it fits into net/http's buffer of 4 KiB.
const smallCall = 2 << 10

// RoundTrip implements http.RoundTripper. It may change the headers of the request: reverse_proxy makes
// a new one for each attempt, and the caller's request is another one.
func (t *callTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := caddyhttp.GetVar(req.Context(), callVar).(*call)
	if !ok {
		return t.sender.RoundTrip(req) // a health check
	}
	resp, err := c.send(req, t.sender)
	sent := req.Header
	req.Header = nil
	if t.Matched {
		req.Header = make(http.Header, len(sent))
		for name, values := range sent {
			if !forwarding.Upstream.Never(name) && !redact.Name(name) { // such headers come from the operator
				req.Header[name] = values
			}
		}
	}
	return resp, err
}

var errSwitched = errors.New("the backend switched to another protocol")

// send sends a copy of the request, because net/http may still be sending when the answer
// arrives.
func (c *call) send(req *http.Request, t http.RoundTripper) (*http.Response, error) {
	sent := *req
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
		out, trip = c.beginTrip(out)
	}
	resp, err := t.RoundTrip(out)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		// A call cannot ask for another protocol. Without this check reverse_proxy would
		// give the raw connection to the caller.
		resp.Body.Close()
		resp, err = nil, errSwitched
	}
	if trip != 0 {
		c.endTrip(trip, resp)
	}
	if err == nil {
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
	if sent.Header["Idempotency-Key"] != nil || sent.Header["X-Idempotency-Key"] != nil {
		return // net/http would send a call again that the backend may have run
	}
	sent.GetBody = func() (io.ReadCloser, error) { return b.newReader(), nil }
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
