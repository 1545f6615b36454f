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
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// endpoint serves the requests of a route.
type endpoint struct {
	decode func(body []byte, optional bool) (any, *fault.Fault) // nil: serve reads the body, if there is one
	serve  func(req *request, in any) (answer any, err error)   // a nil answer: it was sent already
	event  string                                               // the name in the metrics of log-ins and proofs; empty: not counted
}

// plain is an endpoint without a body, or with one that it reads itself.
func plain(serve func(*request) (any, error)) endpoint {
	return endpoint{serve: func(req *request, _ any) (any, error) { return serve(req) }}
}

// takes is an endpoint whose body is a T in JSON. It is read strictly: names that T does
// not have are refused, because a misspelt idempotency_key must not be taken for none.
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

// lists is an endpoint that answers one page of a list.
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

// required returns the fault of a member that is missing in the body.
func required(name string) *fault.Fault {
	return fault.At(fault.MissingParameter, name, "`%s` is required", name)
}

// bodyPatience is how long a caller with an account may take to send a body.
const bodyPatience = 30 * time.Second

// readBody reads the body of a route that takes one, and leaves it in the request, too. If
// the head says that the body cannot be taken, nothing of it is read.
func (req *request) readBody(rt *route) *fault.Fault {
	takes := rt.takes
	if takes == nothing && req.r.ContentLength != 0 && req.r.Method == http.MethodDelete {
		// A caller who names in a body what to delete must not believe that it was read.
		return fault.New(fault.InvalidParameter, "DELETE takes no body here; what this path takes stands in its query")
	}
	if takes == nothing || takes.optional && req.r.ContentLength == 0 {
		return nil
	}
	if reply.Encoding(req.r.Header) != "" {
		// The coding is not repeated: it is any text of the caller's.
		return fault.New(fault.UnsupportedMediaType, "the body is encoded, as Content-Encoding says: send it without an encoding")
	}
	// A form of another site cannot send application/json.
	if media, _, err := mime.ParseMediaType(req.r.Header.Get("Content-Type")); takes.media != "" &&
		(err != nil || media != takes.media || len(req.r.Header["Content-Type"]) != 1) {
		return fault.New(fault.UnsupportedMediaType, "send the body as Content-Type: %s", takes.media)
	}
	patience := bodyPatience
	if req.account == nil {
		patience = reply.UnauthenticatedPatience
	}
	body, f := reply.ReadBody(req.w, req.r, takes.limit, patience, req.claim(rt.who))
	if f != nil {
		return f
	}
	req.read, req.body = true, body
	req.r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// claim opens the claim of the body. Each class of unauthenticated callers has a budget of
// its own.
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
