// Package stripe accepts payments by Stripe Checkout: Stripe shows a page for
// each order and reports the outcome in signed events.
//
// [Stripe] is the Caddy module modelgate.payments.stripe, a payments.Provider.
// checkout.go opens the page; signature.go and events.go verify and decode
// events. The package imports payments, settings, money and Caddy.
package stripe

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stripe/stripe-go/v85"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Stripe))
}

// Stripe accepts payments through Stripe Checkout.
//
// In Stripe's Dashboard, create a webhook endpoint for
// `<base_url>/api/user/stripe/webhook` with these events:
//
//   - checkout.session.completed
//   - checkout.session.async_payment_succeeded
//   - checkout.session.async_payment_failed
//   - checkout.session.expired
//   - charge.refunded
//   - charge.dispute.funds_withdrawn
//   - charge.dispute.funds_reinstated
//
// Other events are acknowledged and have no effect. The key is of test or live
// mode. Events of the other mode are listed and credit nothing.
type Stripe struct {
	// SecretKey is the key of the account, `sk_live_…` or `sk_test_…`, or a
	// restricted one, `rk_live_…` or `rk_test_…`, that may write Checkout
	// Sessions. Placeholders are resolved, such as `{env.STRIPE_SECRET_KEY}`.
	// Required.
	SecretKey settings.Secret `json:"secret_key,omitempty"`

	// WebhookSecret is the signing secret of the webhook endpoint, `whsec_…`.
	// Placeholders are resolved. Required.
	WebhookSecret settings.Secret `json:"webhook_secret,omitempty"`

	// APIURL is the address of Stripe's API, for tests with a mock. It requires
	// a test key. Default: `https://api.stripe.com`.
	APIURL string `json:"api_url,omitempty"`

	live   bool
	client *stripe.Client
	http   *http.Client
	now    func() time.Time
}

// CaddyModule returns the Caddy module information.
func (*Stripe) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.payments.stripe", New: func() caddy.Module { return new(Stripe) }}
}

// modes maps the prefixes of keys to true for live mode and false for test mode.
var modes = map[string]bool{
	"sk_live_": true,
	"rk_live_": true,
	"sk_test_": false,
	"rk_test_": false,
}

// Provision resolves the secrets. It returns an error if one is missing.
func (s *Stripe) Provision(caddy.Context) error {
	if err := errors.Join(
		settings.Resolve("secret_key", &s.SecretKey),
		settings.Resolve("webhook_secret", &s.WebhookSecret),
	); err != nil {
		return err
	}
	// All prefixes have the same length.
	key := s.SecretKey.Reveal()
	live, known := modes[key[:min(len(key), len("sk_live_"))]]
	if !known {
		return errors.New("secret_key is not a secret key: it must begin with sk_live_, sk_test_, rk_live_ or rk_test_")
	}
	s.live = live

	if s.APIURL != "" {
		if err := settings.ResolveURL("api_url", &s.APIURL); err != nil {
			return err
		}
		if s.live {
			return errors.New("api_url is for tests: it must not be used with a live secret_key")
		}
	}
	s.now = time.Now
	s.connect()
	return nil
}

// Cleanup closes idle connections to Stripe.
func (s *Stripe) Cleanup() error {
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	return nil
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	payment stripe {
//		secret_key     <key>
//		webhook_secret <secret>
//		api_url        <url>
//	}
func (s *Stripe) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"secret_key":     settings.Text(&s.SecretKey),
		"webhook_secret": settings.Text(&s.WebhookSecret),
		"api_url":        settings.Text(&s.APIURL),
	}.Unmarshal(d)
}

// Acknowledgement implements payments.Provider. Stripe reads only the status.
func (*Stripe) Acknowledgement() (body, contentType string) {
	return `{"received":true}`, "application/json"
}

// Methods implements payments.Provider.
func (*Stripe) Methods() []string { return []string{http.MethodPost} }

// redacted returns text without the secret key, truncated to 1 KiB, on one line.
func (s *Stripe) redacted(text string) string {
	text = strings.ReplaceAll(text, s.SecretKey.Reveal(), s.SecretKey.String())
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
}

// Interface guards
var (
	_ caddy.Provisioner     = (*Stripe)(nil)
	_ caddy.CleanerUpper    = (*Stripe)(nil)
	_ caddyfile.Unmarshaler = (*Stripe)(nil)
	_ payments.Provider     = (*Stripe)(nil)
	_ payments.HeadChecker  = (*Stripe)(nil)
)
