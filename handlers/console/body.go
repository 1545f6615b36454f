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
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// bodyPatience is how long a caller who is known may take to send the whole of a
// body.
const bodyPatience = 30 * time.Second

// readBody reads what a route takes as the body, and leaves it in the request
// as well. It is refused unread where the head tells that it will not do.
func (req *request) readBody(rt *route) *fault.Fault {
	takes := rt.takes
	if takes == nothing && req.r.ContentLength != 0 && req.r.Method == http.MethodDelete {
		// Who says in a body what is to go must not believe that it was heard.
		return fault.New(fault.InvalidParameter, "DELETE takes no body here; what this path takes stands in its query")
	}
	if takes == nothing || takes.optional && req.r.ContentLength == 0 {
		return nil
	}
	if reply.Encoding(req.r.Header) != "" {
		// It is not repeated: it can be any words of the caller's.
		return fault.New(fault.UnsupportedMediaType, "the body is encoded, as Content-Encoding says: send it without an encoding")
	}
	if f := checkMedia(req.r.Header, takes.media); f != nil {
		return f
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

// checkMedia refuses a body of another type than the one that is wanted: a form
// of another site cannot send application/json.
func checkMedia(header http.Header, wanted string) *fault.Fault {
	if wanted == "" {
		return nil
	}
	given := header.Values("Content-Type")
	if len(given) == 1 {
		if media, _, err := mime.ParseMediaType(given[0]); err == nil && media == wanted {
			return nil
		}
	}
	return fault.New(fault.UnsupportedMediaType, "send the body as Content-Type: %s", wanted)
}

// claim opens the claim of the body. Each class of unauthenticated callers has a
// budget of its own.
func (req *request) claim(who class) *bodymem.Claim {
	bodies := &req.runtime.Bodies
	switch {
	case req.account != nil:
		bodies.Users.Open(&req.memory, req.w, req.owner(), req.console.app.Limits.Bodies())
	case who == service:
		bodies.Webhooks.Open(&req.memory, req.w, auth.Network(req.r), caddymodule.WebhookBodies)
	default:
		bodies.LogIns.Open(&req.memory, req.w, auth.Network(req.r), caddymodule.LogInBodies)
	}
	return &req.memory
}

// decodeMaybe is decode where there may be no body at all.
func decodeMaybe[T any](req *request) (in T, f *fault.Fault) {
	if len(req.body) == 0 {
		return in, nil
	}
	return decode[T](req)
}

// decode reads a body strictly into a T. Names that T does not have are refused:
// a misspelt idempotency_key must not be taken for none.
func decode[T any](req *request) (in T, f *fault.Fault) {
	f = strictjson.Decode(req.body, &in)
	return in, f
}
