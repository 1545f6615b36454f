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
func (v *visit) readBody(rt *route) *fault.Fault {
	takes := rt.takes
	if takes == nothing && v.r.ContentLength != 0 && v.r.Method == http.MethodDelete {
		// Who says in a body what is to go must not believe that it was heard.
		return fault.New(fault.InvalidParameter, "DELETE takes no body here; what this path takes stands in its query")
	}
	if takes == nothing || takes.optional && v.r.ContentLength == 0 {
		return nil
	}
	if reply.Encoding(v.r.Header) != "" {
		// It is not repeated: it can be any words of the caller's.
		return fault.New(fault.UnsupportedMediaType, "the body is encoded, as Content-Encoding says: send it without an encoding")
	}
	if f := checkMedia(v.r.Header, takes.media); f != nil {
		return f
	}
	patience := bodyPatience
	if v.account == nil {
		patience = reply.UnauthenticatedPatience
	}
	body, f := reply.ReadBody(v.w, v.r, takes.limit, patience, v.claim(rt.who))
	if f != nil {
		return f
	}
	v.read, v.body = true, body
	v.r.Body = io.NopCloser(bytes.NewReader(body))
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
func (v *visit) claim(who class) *bodymem.Claim {
	bodies := &v.runtime.Bodies
	switch {
	case v.account != nil:
		bodies.Users.Open(&v.memory, v.w, v.owner(), v.console.app.Limits.Bodies())
	case who == service:
		bodies.Webhooks.Open(&v.memory, v.w, auth.Network(v.r), caddymodule.WebhookBodies)
	default:
		bodies.LogIns.Open(&v.memory, v.w, auth.Network(v.r), caddymodule.LogInBodies)
	}
	return &v.memory
}

// decodeMaybe is decode where there may be no body at all.
func decodeMaybe[T any](v *visit) (in T, f *fault.Fault) {
	if len(v.body) == 0 {
		return in, nil
	}
	return decode[T](v)
}

// decode reads a body strictly into a T. Names that T does not have are refused:
// a misspelt idempotency_key must not be taken for none.
func decode[T any](v *visit) (in T, f *fault.Fault) {
	f = strictjson.Decode(v.body, &in)
	return in, f
}
