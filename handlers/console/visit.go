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

// visit is one request to the console on its way.
type visit struct {
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

// visit begins one. What is said of it here holds for every answer.
func (c *Console) visit(w http.ResponseWriter, r *http.Request) *visit {
	id := requestid.New()
	v := &visit{console: c, id: id, w: w, r: r.WithContext(requestid.With(r.Context(), id))}
	header := w.Header()
	reply.Stamp(header, reply.Console, v.id)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	v.name("http.modelgate.request_id", v.id)
	return v
}

// name sets a placeholder.
func (v *visit) name(placeholder, value string) {
	if repl, ok := v.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set(placeholder, value)
	}
}

// route is the way of all requests but webhooks: what another site sends is
// refused before anything else is said.
func (v *visit) route(rows table) {
	v.run(func() error {
		if err := v.console.crossOrigin.Check(v.r); err != nil {
			return fault.New(fault.CrossOrigin, "this request was sent by the page of another site")
		}
		return v.serve(rows)
	})
}

// serve lets the request in by the route of its method, and counts what came of
// it where that concerns how people are let in.
func (v *visit) serve(rows table) error {
	rt, f := rows.by(v.r.Method)
	if f != nil {
		return f
	}
	err := v.enter(rt)
	if err == nil {
		err = rt.serve(v)
	}
	if event := events[rt.method+" "+rt.path]; event != "" {
		v.console.app.Metrics().Auth(event, fault.OrInternal(err, v.id))
	}
	return err
}

// run answers what fn refuses, and gives back what it has taken.
func (v *visit) run(fn func() error) {
	var leave func()
	var f *fault.Fault
	if v.runtime, leave, f = v.console.app.Enter(v.r.Context()); f != nil {
		v.refuse(f)
		return
	}
	defer leave()
	defer func() {
		v.proved()
		v.memory.Release()
	}()
	if err := fn(); err != nil {
		v.refuse(err)
	}
}

// enter decides whether a request may come in by a route. Nothing of the body
// is read before it is known who comes.
func (v *visit) enter(rt *route) error {
	if f := v.identify(rt.who); f != nil {
		return f
	}
	if f := v.admit(rt.rate); f != nil {
		return f
	}
	if f := v.checkQuery(rt); f != nil {
		return f
	}
	if rt.who == service {
		if f := v.checkHead(); f != nil {
			return f
		}
	}
	if err := v.protect(rt); err != nil {
		return err
	}
	if f := v.readBody(rt); f != nil {
		return f
	}
	if !rt.who.known() || rt.takes == nothing {
		return nil
	}
	// A body may come slowly. Whoever was logged out meanwhile, or has got a second
	// factor to prove, is asked again.
	if f := v.identify(rt.who); f != nil {
		return f
	}
	return v.protect(rt)
}

// identify asks who comes, where a class has an account, and refuses whoever is
// not of the class.
func (v *visit) identify(who class) *fault.Fault {
	if !who.known() {
		return nil
	}
	cookie, _ := v.console.app.Cookie()
	account, f := auth.Account(v.r, v.runtime.Directory, cookie)
	switch {
	case f != nil:
		return f
	case account.HalfOpen && who != half:
		return auth.HalfOpen
	}
	v.account = account
	v.name("http.auth.user.id", account.UserID)
	return nil
}

// refuse answers an error, and logs one that is no fault.
func (v *visit) refuse(err error) {
	f := unverified(fault.OrInternal(err, v.id))
	if f.Code == fault.Internal && !errors.Is(err, context.Canceled) { // else the caller has left
		v.console.logger.Error("a console request failed", zap.String("request_id", v.id),
			zap.String("path", v.r.URL.Path), zap.Error(err))
	}
	if v.read {
		reply.Console.Refuse(v.w, f, v.id)
	} else {
		reply.Console.RefuseUnread(v.w, v.r, f, v.id)
	}
}
