package console

import (
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// setSession sets the session cookie for a lifetime. The gateway always draws the secret
// itself; it never adopts a secret that a browser sends.
func (req *request) setSession(secret identity.Secret, lifetime time.Duration) {
	name, secure := req.console.app.Cookie()
	req.setCookie(name, secret.Reveal(), lifetime, secure, http.SameSiteLaxMode)
}

// renewSession sets the session cookie to a new secret; an access token has none.
// The server decides when a session ends, so the cookie has the longest lifetime of a session.
func (req *request) renewSession(secret identity.Secret) {
	if secret != "" {
		req.setSession(secret, req.console.app.Terms().Lifetime)
	}
}

// forgetSession removes the session cookie.
func (req *request) forgetSession() { req.setSession("", -1) }

// setCeremony binds a log-in by passkey to the browser in which it begins, so that an
// attacker gains nothing by making another person finish it.
func (req *request) setCeremony(secret identity.Secret) {
	name, secure := req.console.app.Cookie()
	req.setCookie(auth.CeremonyCookie(name), secret.Reveal(), identity.CeremonyLife, secure, http.SameSiteStrictMode)
}

// takeCeremony returns the secret that setCeremony set, and removes it. A ceremony can be
// finished only once, even if it fails.
func (req *request) takeCeremony() (string, error) {
	name, secure := req.console.app.Cookie()
	name = auth.CeremonyCookie(name)
	secret, f := auth.Cookie(req.r.Header, name)
	if f != nil {
		return "", f
	}
	req.setCookie(name, "", -1, secure, http.SameSiteStrictMode)
	return secret, nil
}

// deviceLife is the maximum lifetime of a cookie in browsers (RFC 6265bis, section 5.5).
const deviceLife = 400 * 24 * time.Hour

// noteDevice records the device of a user who has logged in, if mails are sent, and sets its cookie.
// send is called if the device is new; it may be nil. If this fails, the log-in succeeds.
func (req *request) noteDevice(userID string, send func(identity.Recipient)) {
	if req.console.app.CheckMail() != nil {
		return
	}
	name, secure := req.console.app.Cookie()
	name = auth.DeviceCookie(name)
	brought, _ := auth.Cookie(req.r.Header, name) // ambiguous: a new device
	secret, err := req.runtime.Directory.NoteDevice(req.r.Context(), userID, brought, send)
	if err != nil {
		req.console.logger.Warn("the device of a log-in could not be recorded", zap.String("request_id", req.id), zap.Error(err))
		return
	}
	req.setCookie(name, secret.Reveal(), deviceLife, secure, http.SameSiteLaxMode)
}

// setCookie sets a cookie for every path of this host, which no script can read. If secure,
// or if this request was encrypted, the browser sends it over encrypted connections only.
// A negative lifetime removes it.
func (req *request) setCookie(name, value string, lifetime time.Duration, secure bool, sameSite http.SameSite) {
	seconds := -1
	if lifetime > 0 {
		seconds = max(int(lifetime/time.Second), 1)
	}
	http.SetCookie(req.w, &http.Cookie{ //nolint:gosec // secure follows base_url: http is for tests on one machine
		Name: name, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: secure || req.r.TLS != nil, SameSite: sameSite,
	})
}
