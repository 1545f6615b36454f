package tasks

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// request is one request that is being served.
type request struct {
	tasks *Tasks
	route *route
	id    string
	w     http.ResponseWriter
	r     *http.Request

	runtime   *caddymodule.Runtime
	leave     func()              // releases the runtime; nil after that
	principal *identity.Principal // nil if the route requires no API key
	adapter   backends.Notified   // of a notice
	wait      time.Duration       // for a change of the task
	memory    bodymem.Claim       // of the body
	read      bool                // the body was read to its end
}

// run serves the request and answers its errors. wrongMethod is set if the path has no
// route for the method.
func (req *request) run(wrongMethod *fault.Fault) {
	req.setPlaceholder("http.modelgate.request_id", req.id)
	f := wrongMethod
	if f == nil {
		req.runtime, req.leave, f = req.tasks.app.Enter(req.r.Context())
	}
	if f != nil {
		req.refuse(f)
		return
	}
	defer req.release()
	if f := req.identify(); f != nil {
		req.refuse(f)
		return
	}
	var s *submission
	if form := req.route.form; form != nil {
		s = &submission{request: req, form: form, started: time.Now()}
	}
	err := req.dispatch(s)
	if s != nil {
		s.report(err)
	}
	if err != nil {
		req.refuse(err)
	}
}

// identify finds the caller, or the backend that takes the notice.
func (req *request) identify() (f *fault.Fault) {
	switch req.route.who {
	case reply.APIKey:
		if req.principal, f = auth.Authenticate(req.r, req.runtime.Directory); f != nil {
			return f
		}
		auth.Name(req.replacer(), req.principal)
	case reply.Signature:
		var ok bool
		if req.adapter, ok = req.tasks.app.Notified(req.r.PathValue("backend")); !ok {
			return noNotices
		}
	}
	if id := req.r.PathValue("task_id"); id != "" {
		req.setPlaceholder("http.modelgate.task_id", id)
	}
	return nil
}

// dispatch applies the other checks of the route and serves the request. s is nil unless the
// request is a submission.
func (req *request) dispatch(s *submission) error {
	rt := req.route
	if s != nil {
		if f := s.readHead(strings.Fields(rt.params)); f != nil {
			return f
		}
	}
	if rt.rate.admit != nil {
		end, f := rt.rate.admit(req)
		if f != nil {
			return f
		}
		if end != nil {
			defer end()
		}
	}
	if rt.who == reply.Signature {
		if f := req.checkHead(); f != nil {
			return f
		}
	}
	if s != nil {
		return s.serve()
	}
	return rt.serve(req)
}

// readBody reads the body. If the head shows that the body must be refused, nothing is read.
func (req *request) readBody() ([]byte, *fault.Fault) {
	if coding := reply.Encoding(req.r.Header); coding != "" {
		return nil, fault.New(fault.UnsupportedMediaType, "Content-Encoding %.64q: send the body without an encoding", coding)
	}
	timeout := reply.UnauthenticatedTimeout
	if req.principal != nil {
		timeout = time.Duration(req.tasks.app.Limits.BodyRead)
		req.runtime.Bodies.Users.Open(&req.memory, req.w, req.principal.UserID, req.tasks.app.Limits.Bodies())
	} else {
		req.runtime.Bodies.Notices.Open(&req.memory, req.w, auth.Network(req.r), caddymodule.NoticeBodies)
	}
	body, refused := reply.ReadBody(req.w, req.r, req.route.maxBody, timeout, &req.memory)
	req.read = refused == nil
	return body, refused
}

// release releases the memory and the runtime. The request must not use them afterwards.
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

func (req *request) setPlaceholder(name, value string) {
	if repl := req.replacer(); repl != nil {
		repl.Set(name, value)
	}
}

// untilEnd calls fn with a context that ends with the request, or when the process can no longer
// wait for it.
func (req *request) untilEnd(fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(req.r.Context())
	defer cancel()
	defer req.runtime.OnEnd(cancel)()
	err := fn(ctx)
	if errors.Is(err, context.Canceled) && req.r.Context().Err() == nil {
		return drained
	}
	return err
}

// drained is the fault of a request that the shutdown of the process aborts.
var drained = fault.New(fault.Overloaded, "the gateway restarts; try again").After(5 * time.Second)

// answer writes a value as JSON.
func (req *request) answer(value any) error {
	body, err := dialect.JSON(value)
	if err != nil {
		return err
	}
	header := req.w.Header()
	dialect.Stamp(header, req.route.dialect, req.id)
	header["Content-Type"] = []string{"application/json"}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	header["Cache-Control"] = []string{"no-store"}
	header["X-Content-Type-Options"] = []string{"nosniff"}
	req.w.WriteHeader(http.StatusOK)
	_, _ = req.w.Write(body) //nolint:gosec // JSON, and nosniff is set
	return nil
}

// statusDisconnected is the status in the access log if the client has disconnected.
const statusDisconnected = 499

// refuse writes an error, and logs the cause of a failure of the gateway.
func (req *request) refuse(err error) {
	if req.disconnected(err) {
		req.w.WriteHeader(statusDisconnected)
		return
	}
	f := fault.OrInternal(err, req.id)
	if plain := error(f); err != plain && f.Status() >= http.StatusInternalServerError {
		req.tasks.logger.Error("a request for a task failed", zap.String("request_id", req.id),
			zap.String("path", req.route.path), zap.Error(err))
	}
	req.route.dialect.RefuseRequest(req.w, req.r, f, req.id, req.read)
}

// disconnected reports whether the client has disconnected, which causes err.
func (req *request) disconnected(err error) bool {
	return errors.Is(err, context.Canceled) && req.r.Context().Err() != nil
}
