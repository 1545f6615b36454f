package console

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// endpoint serves the requests of a route.
type endpoint struct {
	decode func(body []byte, optional bool) (any, *fault.Fault) // nil: serve reads the body itself
	serve  func(req *request, in any) (answer any, err error)   // a nil answer: serve has sent it
	event  string                                               // the name in the metrics of log-ins and proofs; empty: not counted
	roles  []identity.Role                                      // of users who may use it, with a second factor; nil: every caller
}

// plain returns an endpoint without a body, or one that reads the body itself.
func plain(serve func(*request) (any, error)) endpoint {
	return endpoint{serve: func(req *request, _ any) (any, error) { return serve(req) }}
}

// takes returns an endpoint whose body is a T in JSON. Unknown names are refused, because a
// misspelt idempotency_key must not be ignored.
func takes[T any](serve func(*request, T) (any, error)) endpoint {
	return endpoint{
		decode: func(body []byte, optional bool) (any, *fault.Fault) {
			var in T
			if len(body) > 0 || !optional {
				if f := strictjson.Decode(body, &in); f != nil {
					return nil, f
				}
			}
			if c, ok := any(in).(interface{ check() *fault.Fault }); ok {
				return in, c.check()
			}
			return in, nil
		},
		serve: func(req *request, in any) (any, error) { return serve(req, in.(T)) },
	}
}

// lists returns an endpoint that answers one page of a list.
func lists[T any](page func(*request, *query.Query, query.Page) (items []T, total int64, err error)) endpoint {
	return plain(func(req *request) (any, error) {
		q := query.Of(req.r)
		p := q.Page()
		if q.Fault != nil {
			return nil, q.Fault
		}
		items, total, err := page(req, q, p)
		return listed(items, total, p), err
	})
}

// counted returns the endpoint with a name in the metrics.
func (e endpoint) counted(event string) endpoint {
	e.event = event
	return e
}

// required returns the fault of a member that is missing in the body, or nil if it is given.
func required(name string, given bool) *fault.Fault {
	if given {
		return nil
	}
	return fault.At(fault.MissingParameter, name, "`%s` is required", name)
}

// bodyTimeout is how long an authenticated caller may take to send a body.
const bodyTimeout = 30 * time.Second

// readBody reads the body of a route that takes one into the request. If the headers show
// that the body must be refused, it reads nothing.
func (req *request) readBody(rt *route) *fault.Fault {
	takes := rt.takes
	if takes == nothing && req.r.ContentLength != 0 && req.r.Method == http.MethodDelete {
		// A caller who sends parameters in the body must learn that they have no effect.
		return fault.New(fault.InvalidParameter, "DELETE takes no body; send the parameters in the query")
	}
	if takes == nothing || takes.optional && req.r.ContentLength == 0 {
		return nil
	}
	if reply.Encoding(req.r.Header) != "" {
		// The error does not repeat the coding, which is arbitrary text.
		return fault.New(fault.UnsupportedMediaType, "the body is encoded, as Content-Encoding says: send it without an encoding")
	}
	// A form on another site cannot send application/json.
	if media, _, err := mime.ParseMediaType(req.r.Header.Get("Content-Type")); takes.media != "" &&
		(err != nil || media != takes.media || len(req.r.Header["Content-Type"]) != 1) {
		return fault.New(fault.UnsupportedMediaType, "send the body as Content-Type: %s", takes.media)
	}
	timeout := bodyTimeout
	if req.account == nil {
		timeout = reply.UnauthenticatedTimeout
	}
	body, f := reply.ReadBody(req.w, req.r, takes.limit, timeout, req.claim(rt.who))
	if f != nil {
		return f
	}
	req.read, req.body = true, body
	req.r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// claim opens the memory claim of the body. Each class of unauthenticated callers has its own
// budget.
func (req *request) claim(who reply.Credential) *bodymem.Claim {
	bodies := &req.runtime.Bodies
	switch {
	case req.account != nil:
		bodies.Users.Open(&req.memory, req.w, req.owner(), req.console.app.Limits.Bodies())
	case who == reply.Signature:
		bodies.Webhooks.Open(&req.memory, req.w, auth.Network(req.r), caddymodule.WebhookBodies)
	default:
		bodies.LogIns.Open(&req.memory, req.w, auth.Network(req.r), caddymodule.LogInBodies)
	}
	return &req.memory
}
