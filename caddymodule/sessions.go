package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/settings"
)

// The values of registration.
const (
	openRegistration   = "open"
	closedRegistration = "closed"
)

// Session configures the duration of sessions. A change applies to later log-ins.
type Session struct {
	// After how long without a request a session ends. Default: 24h.
	Idle caddy.Duration `json:"idle,omitempty"`

	// After how long a session ends even if it is used. Default: 30d.
	Lifetime caddy.Duration `json:"lifetime,omitempty"`

	// The name of the cookie. If base_url is https, the gateway puts `__Host-` before
	// the name, so that browsers accept it only from this host, and only encrypted.
	// Default: `modelgate_session`.
	Cookie string `json:"cookie,omitempty"`
}

// Verification configures when users must prove their second factor again.
type Verification struct {
	// How long a proof is valid for its session or access token: from 30s to 1h.
	// Default: 5m.
	Lifetime caddy.Duration `json:"lifetime,omitempty"`

	// By how many steps of 30 s the clock of an authenticator app may differ: 0 or 1.
	// Default: 1.
	TOTPSkew *int `json:"totp_skew,omitempty"`

	// The price above which a purchase from the wallet needs such a proof, if the user
	// has a second factor. Default: no purchase needs it.
	StepUpAbove *money.Amount `json:"step_up_above,omitempty"`
}

const (
	defaultIdle         = 24 * time.Hour
	defaultLifetime     = 30 * 24 * time.Hour
	defaultCookie       = "modelgate_session"
	defaultVerification = 5 * time.Minute
)

func (s *Session) setDefaults() {
	setDefault(&s.Idle, defaultIdle)
	setDefault(&s.Lifetime, defaultLifetime)
	s.Cookie = cmp.Or(s.Cookie, defaultCookie)
}

func (s *Session) validate() error {
	var errs []error
	if s.Idle < caddy.Duration(time.Minute) || s.Lifetime < s.Idle || s.Lifetime > caddy.Duration(maxLifetime) {
		errs = append(errs, fmt.Errorf("session: idle is %v and lifetime is %v; allowed: idle from 1m, and lifetime from idle to %v",
			time.Duration(s.Idle), time.Duration(s.Lifetime), maxLifetime))
	}
	return errors.Join(append(errs, validateCookie(s.Cookie))...)
}

// maxLifetime is the maximum lifetime of a cookie in browsers (RFC 6265bis, section 5.5:
// 400 days).
const maxLifetime = 400 * 24 * time.Hour

// validateCookie returns an error for names that are not tokens, and for the prefixes
// that have a meaning for browsers: only the gateway adds them.
func validateCookie(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
		return fmt.Errorf("session: cookie %q is not supported; allowed: 1 to 64 letters, digits, \"_\" and \"-\"", name)
	}
	if strings.HasPrefix(name, "__") {
		return fmt.Errorf("session: cookie %q: names that begin with __ have a meaning for browsers; the gateway adds __Host- by itself", name)
	}
	return nil
}

func (v *Verification) setDefaults() {
	setDefault(&v.Lifetime, defaultVerification)
	if v.TOTPSkew == nil {
		one := 1
		v.TOTPSkew = &one
	}
}

func (v *Verification) validate() error {
	var errs []error
	if v.Lifetime < caddy.Duration(30*time.Second) || v.Lifetime > caddy.Duration(time.Hour) {
		errs = append(errs, fmt.Errorf("verification: lifetime is %v; allowed: 30s to 1h", time.Duration(v.Lifetime)))
	}
	if skew := *v.TOTPSkew; skew < 0 || skew > 1 {
		errs = append(errs, fmt.Errorf("verification: totp_skew is %d; allowed: 0, 1", skew))
	}
	if above := v.StepUpAbove; above != nil && *above < 0 {
		errs = append(errs, errors.New("verification: step_up_above is negative; allowed: 0 and above"))
	}
	return errors.Join(errs...)
}

// setSessionDefaults sets the defaults of sessions, verification and registration.
func (a *App) setSessionDefaults() error {
	a.Registration = cmp.Or(a.Registration, closedRegistration)
	a.Session.setDefaults()
	a.Verification.setDefaults()
	return a.Passkey.Complete(a.BaseURL)
}

func (a *App) validateSessions() error {
	return errors.Join(validateRegistration(a.Registration), a.Session.validate(), a.Verification.validate())
}

func validateRegistration(word string) error {
	if word != openRegistration && word != closedRegistration {
		return fmt.Errorf("registration: %q is not supported; allowed: %s, %s", word, openRegistration, closedRegistration)
	}
	return nil
}

// unmarshalCaddyfile reads
//
//	session {
//		idle     <duration>
//		lifetime <duration>
//		cookie   <name>
//	}
func (s *Session) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Block(d, map[string]settings.Reader{
		"idle":     settings.Duration(&s.Idle),
		"lifetime": settings.Duration(&s.Lifetime),
		"cookie":   settings.Checked(&s.Cookie, validateCookie),
	})
}

// unmarshalCaddyfile reads
//
//	verification {
//		lifetime      <duration>
//		totp_skew     0|1
//		step_up_above <amount>
//	}
func (v *Verification) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Block(d, map[string]settings.Reader{
		"lifetime": settings.Duration(&v.Lifetime),
		"totp_skew": settings.One(func(word string) error {
			n, err := strconv.Atoi(word)
			if err != nil || n < 0 || n > 1 {
				return fmt.Errorf("totp_skew: %q is not supported; allowed: 0, 1", word)
			}
			v.TOTPSkew = &n
			return nil
		}),
		"step_up_above": optionalAmount(&v.StepUpAbove),
	})
}

// ServeConsole records that a site has the console, and the path of its pages; empty: it
// has none. The console calls it from Provision.
func (a *App) ServeConsole(path string) { a.console = console{true, cmp.Or(path, a.console.path)} }

// OpenRegistration reports whether anonymous callers of the console may create an
// account.
func (a *App) OpenRegistration() bool { return a.Registration == openRegistration }

// hostPrefix makes browsers accept a cookie only if it arrives encrypted, from this host
// and for all its paths (RFC 6265bis, section 4.1.3.2). Neither another host nor an
// attacker on the network can set such a cookie.
const hostPrefix = "__Host-"

// Cookie returns the name of the session cookie, and whether browsers may send it only
// encrypted. That depends on base_url, never on a request.
func (a *App) Cookie() (name string, secure bool) {
	if strings.HasPrefix(a.BaseURL, "https://") {
		return hostPrefix + a.Session.Cookie, true
	}
	return a.Session.Cookie, false
}

// Terms returns the durations of new sessions and the limits of log-ins.
func (a *App) Terms() identity.Terms {
	return identity.Terms{Idle: time.Duration(a.Session.Idle), Lifetime: time.Duration(a.Session.Lifetime), LoginLimits: a.LoginLimits()}
}

// LoginLimits returns the limits of log-ins and registrations.
func (a *App) LoginLimits() identity.LoginLimits {
	return identity.LoginLimits{PerUser: int(a.Limits.LoginPerUser), PerAddress: int(a.Limits.LoginPerAddress)}
}

// Issuer returns the name of this gateway in authenticator apps: its host.
func (a *App) Issuer() string {
	if u, err := url.Parse(a.BaseURL); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	return AppID
}
