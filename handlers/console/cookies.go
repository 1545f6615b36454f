package console

import (
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// keep puts a session's secret into the browser, for so long. The secret is
// always one that was just drawn here: what a browser brings is never adopted.
func (req *request) keep(secret identity.Secret, lifetime time.Duration) {
	name, secure := req.console.app.Cookie()
	req.setCookie(name, secret.Reveal(), lifetime, secure, http.SameSiteLaxMode)
}

// keepEntry does so for a log-in. A half-open session is kept as long as it lasts.
func (req *request) keepEntry(entry identity.Entry) {
	if len(entry.Factors) > 0 {
		req.keep(entry.Secret, time.Unix(entry.Expires, 0).Sub(req.runtime.Store.Now()))
		return
	}
	req.renew(entry.Secret)
}

// renew does so for a session that goes on under another secret; an access token
// has none. The server knows when a session has ended, which depends on its use:
// the cookie stays as long as any session could.
func (req *request) renew(secret identity.Secret) {
	if secret != "" {
		req.keep(secret, req.console.app.Terms().Lifetime)
	}
}

// forget takes the session's secret out of the browser.
func (req *request) forget() {
	name, secure := req.console.app.Cookie()
	req.setCookie(name, "", -1, secure, http.SameSiteLaxMode)
}

// keepCeremony binds a log-in by passkey to the browser in which it is begun:
// who lures another into finishing it gains nothing.
func (req *request) keepCeremony(secret identity.Secret) {
	name, secure := req.console.app.Cookie()
	req.setCookie(auth.CeremonyCookie(name), secret.Reveal(), identity.CeremonyLife, secure, http.SameSiteStrictMode)
}

// ceremony returns what keepCeremony has left, and forgets it: a ceremony is
// finished once, whatever comes of it.
func (req *request) ceremony() (string, error) {
	name, secure := req.console.app.Cookie()
	name = auth.CeremonyCookie(name)
	secret, f := auth.Cookie(req.r.Header, name)
	if f != nil {
		return "", f
	}
	req.setCookie(name, "", -1, secure, http.SameSiteStrictMode)
	return secret, nil
}

// setCookie puts a cookie on the answer that no script can read, that is sent
// for every path of this host and, where secure or where this request came
// encrypted, encrypted alone. One that is gone at once has no lifetime.
func (req *request) setCookie(name, value string, lifetime time.Duration, secure bool, sameSite http.SameSite) {
	seconds := -1
	if lifetime > 0 {
		seconds = max(int(lifetime/time.Second), 1)
	}
	http.SetCookie(req.w, &http.Cookie{ //nolint:gosec // secure is as base_url says: http is for trying on one machine
		Name: name, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: secure || req.r.TLS != nil, SameSite: sameSite,
	})
}
