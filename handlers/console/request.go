package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

// request is one request to the console on its way.
type request struct {
	console *Console
	id      string // of the request
	w       http.ResponseWriter
	r       *http.Request

	runtime *caddymodule.Runtime
	account *identity.Account // nil where the route asks for no credential
	body    []byte            // read whole, as far as the route takes one
	grant   limit.Grant       // of the rates; ended once it is known who comes
	memory  bodymem.Claim     // of the body
	read    bool              // the body was read to its end
}

// newRequest returns a request and sets the headers that every answer has.
func (c *Console) newRequest(w http.ResponseWriter, r *http.Request) *request {
	id := requestid.New()
	req := &request{console: c, id: id, w: w, r: r.WithContext(requestid.With(r.Context(), id))}
	header := w.Header()
	reply.Stamp(header, reply.Console, req.id)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	req.name("http.modelgate.request_id", req.id)
	return req
}

// name sets a placeholder.
func (req *request) name(placeholder, value string) {
	if repl, ok := req.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set(placeholder, value)
	}
}

// route is the way of all requests but webhooks: what another site sends is
// refused before anything else is said.
func (req *request) route(rows table) {
	req.run(func() error {
		if err := req.console.crossOrigin.Check(req.r); err != nil {
			return fault.New(fault.CrossOrigin, "this request was sent by the page of another site")
		}
		return req.serve(rows)
	})
}

// serve lets the request in by the route of its method, and counts what came of
// it where that concerns how people are let in.
func (req *request) serve(rows table) error {
	rt, f := rows.by(req.r.Method)
	if f != nil {
		return f
	}
	err := req.enter(rt)
	if err == nil {
		err = rt.serve(req)
	}
	if event := events[rt.method+" "+rt.path]; event != "" {
		req.console.app.Metrics().Auth(event, req.fault(err))
	}
	return err
}

// run answers what fn refuses, and gives back what it has taken.
func (req *request) run(fn func() error) {
	var leave func()
	var f *fault.Fault
	if req.runtime, leave, f = req.console.app.Enter(req.r.Context()); f != nil {
		req.refuse(f)
		return
	}
	defer leave()
	defer func() {
		req.proved()
		req.memory.Release()
	}()
	if err := fn(); err != nil {
		req.refuse(err)
	}
}

// enter decides whether a request may come in by a route. Nothing of the body
// is read before it is known who comes.
func (req *request) enter(rt *route) error {
	if f := req.identify(rt.who); f != nil {
		return f
	}
	if f := req.admit(rt.rate); f != nil {
		return f
	}
	if f := req.checkQuery(rt); f != nil {
		return f
	}
	if rt.who == service {
		if f := req.checkHead(); f != nil {
			return f
		}
	}
	if err := req.protect(rt); err != nil {
		return err
	}
	if f := req.readBody(rt); f != nil {
		return f
	}
	if !rt.who.known() || rt.takes == nothing {
		return nil
	}
	// A body may come slowly. Whoever was logged out meanwhile, or has got a second
	// factor to prove, is asked again.
	if f := req.identify(rt.who); f != nil {
		return f
	}
	return req.protect(rt)
}

// identify asks who comes, where a class has an account, and refuses whoever is
// not of the class.
func (req *request) identify(who class) *fault.Fault {
	if !who.known() {
		return nil
	}
	cookie, _ := req.console.app.Cookie()
	account, f := auth.Account(req.r, req.runtime.Directory, cookie)
	switch {
	case f != nil:
		return f
	case account.HalfOpen && who != half:
		return auth.HalfOpen
	}
	req.account = account
	req.name("http.auth.user.id", account.UserID)
	return nil
}

// fault returns what a caller hears of an error: a fault as it is, and of
// anything else no more than that it happened.
func (req *request) fault(err error) *fault.Fault {
	var f *fault.Fault
	if err == nil || errors.As(err, &f) {
		return f
	}
	return fault.New(fault.Internal, "something went wrong; it has been logged under %s", req.id)
}

// refuse answers an error, and logs one that is no fault.
func (req *request) refuse(err error) {
	f := unverified(req.fault(err))
	if f.Code == fault.Internal && !errors.Is(err, context.Canceled) { // else the caller has left
		req.console.logger.Error("a console request failed", zap.String("request_id", req.id),
			zap.String("path", req.r.URL.Path), zap.Error(err))
	}
	if req.read {
		reply.Console.Refuse(req.w, f, req.id)
	} else {
		reply.Console.RefuseUnread(req.w, req.r, f, req.id)
	}
}
