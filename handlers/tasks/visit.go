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

// visit is one request on its way.
type visit struct {
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
func (v *visit) run() {
	v.name("http.modelgate.request_id", v.id)
	if f := v.route.checkMethod(v.r.Method); f != nil {
		v.refuse(f)
		return
	}
	var f *fault.Fault
	if v.runtime, v.leave, f = v.tasks.app.Enter(v.r.Context()); f != nil {
		v.refuse(f)
		return
	}
	defer v.release()
	if v.route.who == caller {
		if v.principal, f = auth.Authenticate(v.r, v.runtime.Directory); f != nil {
			v.refuse(f)
			return
		}
		auth.Name(v.replacer(), v.principal)
	}
	if err := v.route.serve(v); err != nil {
		v.refuse(err)
	}
}

// release gives back what the request has taken of the runtime, which it does not
// use any more.
func (v *visit) release() {
	if v.leave != nil {
		v.memory.Release()
		v.leave()
		v.leave = nil
	}
}

func (v *visit) replacer() *caddy.Replacer {
	repl, _ := v.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return repl
}

// name sets a placeholder.
func (v *visit) name(placeholder, value string) {
	if repl := v.replacer(); repl != nil {
		repl.Set(placeholder, value)
	}
}

// last runs what may take long, under a context that ends with the request and
// when the process cannot wait for it any more.
func (v *visit) last(fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(v.r.Context())
	defer cancel()
	defer v.runtime.OnEnd(cancel)()
	err := fn(ctx)
	if errors.Is(err, context.Canceled) && v.r.Context().Err() == nil {
		return drained
	}
	return err
}

// drained is what a caller hears whose request outlasts the process.
var drained = fault.New(fault.Overloaded, "the gateway restarts; try again").After(5 * time.Second)

// answer answers v as JSON. Links in it stay as they are, so that one can be
// copied from what a terminal shows.
func (v *visit) answer(what any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(what); err != nil {
		return err
	}
	body.Truncate(body.Len() - 1) // the newline
	header := v.w.Header()
	reply.Stamp(header, v.route.dialect, v.id)
	header["Content-Type"] = []string{"application/json"}
	header["Content-Length"] = []string{strconv.Itoa(body.Len())}
	header["Cache-Control"] = []string{"no-store"}
	header["X-Content-Type-Options"] = []string{"nosniff"}
	v.w.WriteHeader(http.StatusOK)
	_, _ = v.w.Write(body.Bytes()) //nolint:gosec // JSON that nobody may take for anything else
	return nil
}

// statusLeft is what the access log says of a caller who has left.
const statusLeft = 499

// refuse answers an error, and logs what is behind one of ours.
func (v *visit) refuse(err error) {
	if v.left(err) {
		v.w.WriteHeader(statusLeft)
		return
	}
	f := fault.OrInternal(err, v.id)
	if plain := error(f); err != plain && f.Status() >= http.StatusInternalServerError {
		v.tasks.logger.Error("a request for a task failed", zap.String("request_id", v.id),
			zap.String("path", v.route.path), zap.Error(err))
	}
	if v.read {
		v.route.dialect.Refuse(v.w, f, v.id)
	} else {
		v.route.dialect.RefuseUnread(v.w, v.r, f, v.id)
	}
}

// left tells whether an error is that the caller has left.
func (v *visit) left(err error) bool {
	return errors.Is(err, context.Canceled) && v.r.Context().Err() != nil
}
