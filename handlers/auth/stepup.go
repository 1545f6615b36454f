package auth

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
)

func init() {
	caddy.RegisterModule(StepUp{})
	caddymodule.RegisterDirective("modelgate_stepup", func() caddymodule.Directive { return new(StepUp) })
}

// StepUp lets a request pass only if its user is logged in, by a session or an access token. The
// credential must have a step-up in force, which POST /api/verify grants. A user without a
// second factor does not pass. The directive guards other services of the operator; the
// console's routes have their own checks. Refusals have the form of the console: 401
// NOT_LOGGED_IN or SECOND_FACTOR_REQUIRED, 403 VERIFICATION_REQUIRED or VERIFICATION_EXPIRED.
//
// The gateway's cookies, Authorization and X-Api-Key are removed from the request. If a
// request has a session and may come from another site's page, it is refused unless it only reads.
//
// Placeholder | Description
// ------------|-------------
// `{http.auth.user.id}` | The id of the user
type StepUp struct {
	app         *caddymodule.App
	crossOrigin *http.CrossOriginProtection
}

// CaddyModule returns the Caddy module information.
func (StepUp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.modelgate_stepup", New: func() caddy.Module { return new(StepUp) }}
}

// Provision finds the app.
func (s *StepUp) Provision(ctx caddy.Context) (err error) {
	s.crossOrigin = http.NewCrossOriginProtection()
	if s.app, err = caddymodule.Of(ctx); err != nil {
		return err
	}
	s.app.Metrics().AuthEvent(stepUpEvent)
	return nil
}

// stepUpEvent is the name of an attempt to pass the directive, in metrics.
const stepUpEvent = "stepup"

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (s *StepUp) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	account, f := s.account(r)
	s.app.Metrics().Auth(stepUpEvent, f)
	if f != nil {
		dialect.Console.RefuseUnread(w, r, f, requestid.New())
		return nil
	}
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set("http.auth.user.id", account.UserID)
	}
	cookie, _ := s.app.Cookie()
	dropCookies(r.Header, cookie, CeremonyCookie(cookie), DeviceCookie(cookie))
	r.Header.Del("Authorization")
	r.Header.Del("X-Api-Key")
	return reply.Pass(w, r, next, s.app.VersionHeader)
}

// CeremonyCookie returns the name of the cookie that binds a log-in by passkey to its browser, given
// the name of the session's cookie.
func CeremonyCookie(session string) string { return session + "_passkey" }

// DeviceCookie returns the name of the cookie by which a device is recognised, given the name of the
// session's cookie.
func DeviceCookie(session string) string { return session + "_device" }

// account returns the account of a request that may pass.
func (s *StepUp) account(r *http.Request) (*identity.Account, *fault.Fault) {
	runtime, leave, f := s.app.Enter(r.Context())
	if f != nil {
		return nil, f
	}
	// Only the look-ups need the runtime.
	defer leave()
	cookie, _ := s.app.Cookie()
	account, f := Account(r, runtime.Directory, cookie)
	switch {
	case f != nil:
		return nil, f
	case account.HalfOpen:
		return nil, HalfOpen
	case account.Session && s.crossOrigin.Check(asUnsafe(r)) != nil:
		return nil, fault.New(fault.CrossOrigin, "this request was sent by the page of another site")
	}
	if err := runtime.Directory.Fresh(r.Context(), account); err != nil {
		return nil, fault.FromStore(err)
	}
	// Fresh passes users without a factor.
	factors, err := runtime.Directory.Factors(r.Context(), account.UserID)
	if err != nil {
		return nil, fault.FromStore(err)
	}
	if !factors.TOTP && len(factors.Passkeys) == 0 {
		return nil, fault.New(fault.VerificationRequired, "this needs a second factor, and there is none on your account; set one up, then verify")
	}
	return account, nil
}

// asUnsafe returns the request for the cross-origin check. A GET with an Upgrade header, such as a
// WebSocket handshake, may do more than read, so asUnsafe returns it as a POST.
func asUnsafe(r *http.Request) *http.Request {
	if r.Header.Get("Upgrade") == "" {
		return r
	}
	post := *r
	post.Method = http.MethodPost
	return &post
}

// UnmarshalCaddyfile reads
//
//	modelgate_stepup [<matcher>]
func (s *StepUp) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return caddymodule.NoOptions(d)
}

var _ caddy.Provisioner = (*StepUp)(nil)
