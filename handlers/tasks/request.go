package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// request is one request on its way.
type request struct {
	tasks    *Tasks
	route    *route
	segments []string // of the path, which its pattern leaves open
	id       string   // of the request
	w        http.ResponseWriter
	r        *http.Request

	runtime   *caddymodule.Runtime
	leave     func()              // gives the runtime back; nil when it has been
	principal *identity.Principal // nil where the route asks for no credential
	memory    bodymem.Claim       // of the body
	read      bool                // the body was read to its end
}

// run serves the request, answers what it is refused for, and gives back what it
// has taken.
func (req *request) run() {
	req.name("http.modelgate.request_id", req.id)
	if f := req.route.checkMethod(req.r.Method); f != nil {
		req.refuse(f)
		return
	}
	var f *fault.Fault
	if req.runtime, req.leave, f = req.tasks.app.Enter(req.r.Context()); f != nil {
		req.refuse(f)
		return
	}
	defer req.release()
	if req.route.who == caller {
		if req.principal, f = auth.Authenticate(req.r, req.runtime.Directory); f != nil {
			req.refuse(f)
			return
		}
		auth.Name(req.replacer(), req.principal)
	}
	if err := req.route.serve(req); err != nil {
		req.refuse(err)
	}
}

// release gives back what the request has taken of the runtime, which it does not
// use any more.
func (req *request) release() {
	if req.leave != nil {
		req.memory.Release()
		req.leave()
		req.leave = nil
	}
}

func (req *request) replacer() *caddy.Replacer {
	repl, _ := req.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return repl
}

// name sets a placeholder.
func (req *request) name(placeholder, value string) {
	if repl := req.replacer(); repl != nil {
		repl.Set(placeholder, value)
	}
}

// last runs what may take long, under a context that ends with the request and
// when the process cannot wait for it any more.
func (req *request) last(fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(req.r.Context())
	defer cancel()
	defer req.runtime.OnEnd(cancel)()
	err := fn(ctx)
	if errors.Is(err, context.Canceled) && req.r.Context().Err() == nil {
		return drained
	}
	return err
}

// drained is what a caller hears whose request outlasts the process.
var drained = fault.New(fault.Overloaded, "the gateway restarts; try again").After(5 * time.Second)

// answer answers a value as JSON. Links in it stay as they are, so that one can be
// copied from what a terminal shows.
func (req *request) answer(what any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(what); err != nil {
		return err
	}
	body.Truncate(body.Len() - 1) // the newline
	header := req.w.Header()
	reply.Stamp(header, req.route.dialect, req.id)
	header["Content-Type"] = []string{"application/json"}
	header["Content-Length"] = []string{strconv.Itoa(body.Len())}
	header["Cache-Control"] = []string{"no-store"}
	header["X-Content-Type-Options"] = []string{"nosniff"}
	req.w.WriteHeader(http.StatusOK)
	_, _ = req.w.Write(body.Bytes()) //nolint:gosec // JSON that nobody may take for anything else
	return nil
}

// statusLeft is what the access log says of a caller who has left.
const statusLeft = 499

// fault returns what a caller hears of an error: a fault as it is, and of
// anything else no more than that it happened.
func (req *request) fault(err error) *fault.Fault {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return fault.New(fault.Internal, "something went wrong; it has been logged under %s", req.id)
}

// refuse answers an error, and logs what is behind one of ours.
func (req *request) refuse(err error) {
	if req.left(err) {
		req.w.WriteHeader(statusLeft)
		return
	}
	f := req.fault(err)
	if plain := error(f); err != plain && f.Status() >= http.StatusInternalServerError {
		req.tasks.logger.Error("a request for a task failed", zap.String("request_id", req.id),
			zap.String("path", req.route.path), zap.Error(err))
	}
	if req.read {
		req.route.dialect.Refuse(req.w, f, req.id)
	} else {
		req.route.dialect.RefuseUnread(req.w, req.r, f, req.id)
	}
}

// left tells whether an error is that the caller has left.
func (req *request) left(err error) bool {
	return errors.Is(err, context.Canceled) && req.r.Context().Err() != nil
}
