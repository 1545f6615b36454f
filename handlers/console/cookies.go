package console

import (
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// keep puts a session's secret into the browser, for so long. The secret is
// always one that was just drawn here: what a browser brings is never adopted.
func (v *visit) keep(secret identity.Secret, lifetime time.Duration) {
	name, secure := v.console.app.Cookie()
	v.setCookie(name, secret.Reveal(), lifetime, secure, http.SameSiteLaxMode)
}

// keepEntry does so for a log-in. A half-open session is kept as long as it lasts.
func (v *visit) keepEntry(entry identity.Entry) {
	if len(entry.Factors) > 0 {
		v.keep(entry.Secret, time.Unix(entry.Expires, 0).Sub(v.runtime.Store.Now()))
		return
	}
	v.renew(entry.Secret)
}

// renew does so for a session that goes on under another secret; an access token
// has none. The server knows when a session has ended, which depends on its use:
// the cookie stays as long as any session could.
func (v *visit) renew(secret identity.Secret) {
	if secret != "" {
		v.keep(secret, v.console.app.Terms().Lifetime)
	}
}

// forget takes the session's secret out of the browser.
func (v *visit) forget() {
	name, secure := v.console.app.Cookie()
	v.setCookie(name, "", -1, secure, http.SameSiteLaxMode)
}

// keepCeremony binds a log-in by passkey to the browser in which it is begun:
// who lures another into finishing it gains nothing.
func (v *visit) keepCeremony(secret identity.Secret) {
	name, secure := v.console.app.Cookie()
	v.setCookie(auth.CeremonyCookie(name), secret.Reveal(), identity.CeremonyLife, secure, http.SameSiteStrictMode)
}

// ceremony returns what keepCeremony has left, and forgets it: a ceremony is
// finished once, whatever comes of it.
func (v *visit) ceremony() (string, error) {
	name, secure := v.console.app.Cookie()
	name = auth.CeremonyCookie(name)
	secret, f := auth.Cookie(v.r.Header, name)
	if f != nil {
		return "", f
	}
	v.setCookie(name, "", -1, secure, http.SameSiteStrictMode)
	return secret, nil
}

// setCookie puts a cookie on the answer that no script can read, that is sent
// for every path of this host and, where secure or where this request came
// encrypted, encrypted alone. One that is gone at once has no lifetime.
func (v *visit) setCookie(name, value string, lifetime time.Duration, secure bool, sameSite http.SameSite) {
	seconds := -1
	if lifetime > 0 {
		seconds = max(int(lifetime/time.Second), 1)
	}
	http.SetCookie(v.w, &http.Cookie{ //nolint:gosec // secure is as base_url says: http is for trying on one machine
		Name: name, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: secure || v.r.TLS != nil, SameSite: sameSite,
	})
}
