package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

// request is one request to the console that is being served.
type request struct {
	console *Console
	id      string
	w       http.ResponseWriter
	r       *http.Request

	runtime *caddymodule.Runtime
	account *identity.Account // nil if the route demands no credential
	body    []byte            // all of it, if the route takes one
	grant   limit.Grant       // of the rate; ended once the caller is known
	memory  bodymem.Claim     // of the body
	read    bool              // the body was read to its end
}

// newRequest returns a request and sets the headers that every answer has.
func (c *Console) newRequest(w http.ResponseWriter, r *http.Request) *request {
	id := requestid.New()
	req := &request{console: c, id: id, w: w, r: r.WithContext(requestid.With(r.Context(), id))}
	header := w.Header()
	dialect.Stamp(header, dialect.Console, id)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	req.setPlaceholder("http.modelgate.request_id", id)
	return req
}

func (req *request) setPlaceholder(name, value string) {
	if repl, ok := req.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set(name, value)
	}
}

// run serves the request by a route of its path and answers its errors. wrongMethod is
// set if the path has no route for the method.
func (req *request) run(rt *route, wrongMethod *fault.Fault) {
	var leave func()
	var f *fault.Fault
	if req.runtime, leave, f = req.console.app.Enter(req.r.Context()); f != nil {
		req.refuse(f)
		return
	}
	defer leave()
	defer func() {
		req.endGrant()
		req.memory.Release()
	}()
	f = req.checkSender(rt)
	f = cmp.Or(f, wrongMethod)
	if f != nil {
		req.refuse(f)
		return
	}
	in, err := req.enter(rt)
	var answer any
	if err == nil {
		answer, err = rt.serve(req, in)
	}
	if err == nil && answer != nil {
		err = req.send(answer)
	}
	if rt.event != "" {
		req.console.app.Metrics().Auth(rt.event, fault.OrInternal(err, req.id))
	}
	if err != nil {
		req.refuse(err)
	}
}

// checkSender refuses requests that a browser sends for a page of another site. On the routes
// of payment services it refuses services that are not configured.
func (req *request) checkSender(rt *route) *fault.Fault {
	if rt.who != reply.Signature {
		if err := req.console.crossOrigin.Check(req.r); err != nil {
			return fault.New(fault.CrossOrigin, "this request was sent by the page of another site")
		}
		return nil
	}
	provider, f := req.provider()
	if f != nil {
		return f
	}
	if methods := provider.Methods(); !slices.Contains(methods, req.r.Method) {
		return reply.MethodNotAllowed(rt.path, methods)
	}
	return nil
}

// enter applies everything that the row of the route demands, and returns the decoded
// body. It reads nothing of the body before it knows the caller.
func (req *request) enter(rt *route) (in any, err error) {
	if f := req.identify(rt.who); f != nil {
		return nil, f
	}
	if f := req.admit(rt.rate); f != nil {
		return nil, f
	}
	if err := req.checkRole(rt.roles); err != nil {
		return nil, err
	}
	if rt.who.HasAccount() {
		q := query.Of(req.r)
		if q.CheckNames(rt.parameters()); q.Fault != nil {
			return nil, q.Fault
		}
	}
	if rt.who == reply.Signature {
		if f := req.checkHead(); f != nil {
			return nil, f
		}
	}
	if err := rt.asks.checkHead(req); err != nil {
		return nil, err
	}
	if f := req.readBody(rt); f != nil {
		return nil, f
	}
	if rt.who.HasAccount() && rt.takes != nothing {
		// A body may arrive slowly. Meanwhile the session may have ended, or the user may
		// have set up a second factor.
		if f := req.identify(rt.who); f != nil {
			return nil, f
		}
		if err := req.checkRole(rt.roles); err != nil {
			return nil, err
		}
		if err := rt.asks.checkHead(req); err != nil {
			return nil, err
		}
	}
	if rt.decode != nil {
		var f *fault.Fault
		if in, f = rt.decode(req.body, rt.takes.optional); f != nil {
			return nil, f
		}
	}
	if rt.asks.checkBody != nil {
		err = rt.asks.checkBody(req, in)
	}
	return in, err
}

// identify finds the account of the caller and refuses a credential of another kind.
func (req *request) identify(who reply.Credential) *fault.Fault {
	if !who.HasAccount() {
		return nil
	}
	cookie, _ := req.console.app.Cookie()
	account, f := auth.Account(req.r, req.runtime.Directory, cookie)
	switch {
	case f != nil:
		return f
	case account.HalfOpen && who != reply.HalfOpen:
		return auth.HalfOpen
	}
	req.account = account
	req.setPlaceholder("http.auth.user.id", account.UserID)
	return nil
}

// checkRole returns FORBIDDEN unless the user has one of the roles, and a second factor.
func (req *request) checkRole(roles []identity.Role) error {
	switch {
	case roles == nil:
		return nil
	case !slices.Contains(roles, req.account.Role):
		return identity.NeedsRole(req.account.Role, roles...)
	}
	factors, err := req.runtime.Directory.Factors(req.r.Context(), req.account.UserID)
	if err == nil && !shownFactors(factors).Enabled {
		err = fault.New(fault.Forbidden, "a role can be used only with a second factor: set up an authenticator app or a passkey first")
	}
	return err
}

// refuse answers an error, and logs one that is no fault.
func (req *request) refuse(err error) {
	f := unverified(fault.OrInternal(err, req.id))
	if f.Code == fault.Internal && !errors.Is(err, context.Canceled) { // else the caller has disconnected
		req.console.logger.Error("a console request failed", zap.String("request_id", req.id),
			zap.String("path", req.r.URL.Path), zap.Error(err))
	}
	dialect.Console.RefuseRequest(req.w, req.r, f, req.id, req.read)
}
