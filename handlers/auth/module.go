package auth

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

func init() {
	caddy.RegisterModule(Auth{})
	caddymodule.RegisterDirective("modelgate_auth", func() caddymodule.Directive { return new(Auth) })
}

// Auth passes a request only with a valid API key, on any path. It protects routes without a check
// of their own; the other modelgate directives check their credential themselves. Auth removes the
// credential from the request, so that neither upstreams nor later log lines see it.
//
// Placeholder | Description
// ------------|-------------
// `{http.auth.user.id}` | The id of the user whose key was used
// `{http.modelgate.key_id}` | The id of the key
type Auth struct {
	app *caddymodule.App
}

// CaddyModule returns the Caddy module information.
func (Auth) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_auth", New: func() caddy.Module { return new(Auth) }}
}

// Provision finds the app.
func (a *Auth) Provision(ctx caddy.Context) (err error) {
	a.app, err = caddymodule.Of(ctx)
	return err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (a *Auth) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	principal, f := a.principal(r)
	if f != nil {
		reply.DialectOf(r, a.app.VersionHeader).RefuseUnread(w, r, f, requestid.New())
		return nil
	}
	caddyhttp.SetVar(r.Context(), principalVar, principal)
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	Name(repl, principal)
	r.Header.Del("Authorization")
	r.Header.Del("X-Api-Key")
	return reply.Pass(w, r, next, a.app.VersionHeader)
}

// Name sets the placeholders that name the principal of a request.
func Name(repl *caddy.Replacer, principal *identity.Principal) {
	if repl != nil {
		repl.Set("http.auth.user.id", principal.UserID)
		repl.Set("http.modelgate.key_id", principal.KeyID)
	}
}

func (a *Auth) principal(r *http.Request) (*identity.Principal, *fault.Fault) {
	runtime, leave, f := a.app.Enter(r.Context())
	if f != nil {
		return nil, f
	}
	// Only the look-up needs the runtime.
	defer leave()
	return Authenticate(r, runtime.Directory)
}

// UnmarshalCaddyfile reads
//
//	modelgate_auth [<matcher>]
func (a *Auth) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return caddymodule.NoOptions(d)
}

var _ caddy.Provisioner = (*Auth)(nil)
