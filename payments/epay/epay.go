// Package epay accepts payments by the epay protocol (易支付), which many Chinese payment services
// support. A service sends the user to Alipay, WeChat Pay or others, and reports the payment in a
// request that is signed with MD5 and a shared key.
//
// The protocol has no time in its signatures and no refunds. The expiry of the order limits how long
// a notice is accepted. A second notice has no effect, because an order is credited once.
//
// [Epay] is the Caddy module modelgate.payments.epay, a payments.Provider. checkout.go builds the
// form, notice.go decodes notices, and signature.go signs and verifies. The package imports payments,
// settings, money and Caddy.
package epay

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Epay))
}

// Epay accepts payments through a service with the epay protocol. The service
// calls `<base_url>/api/user/epay/webhook`; each order contains this address.
type Epay struct {
	// URL is the address below which the service has its submit.php, such as
	// `https://pay.example.com/`. Placeholders are resolved. Required.
	URL string `json:"url,omitempty"`

	// PID is the merchant's number. Placeholders are resolved. Required.
	PID string `json:"pid,omitempty"`

	// Key is the signing key, shared with the service. Placeholders are
	// resolved, such as `{env.EPAY_KEY}`. Required.
	Key settings.Secret `json:"key,omitempty"`

	// Method is the payment method in the service's spelling: `alipay`, `wxpay`
	// or another one. Default: `alipay`.
	Method string `json:"method,omitempty"`

	// Currency is the currency of the service: three capital letters of ISO 4217.
	// The notices do not contain it. It must be that of the gateway. Default:
	// `CNY`.
	Currency string `json:"currency,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*Epay) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.payments.epay", New: func() caddy.Module { return new(Epay) }}
}

// Provision resolves the placeholders and sets the defaults. It returns an
// error if a required setting is missing.
func (e *Epay) Provision(caddy.Context) error {
	e.Method = cmp.Or(e.Method, "alipay")
	e.Currency = e.currency()
	return errors.Join(
		settings.ResolveURL("url", &e.URL),
		settings.Resolve("pid", &e.PID),
		settings.Resolve("key", &e.Key),
	)
}

// Validate checks the values that are signed.
func (e *Epay) Validate() error {
	if err := checkCurrency(e.Currency); err != nil {
		return err
	}
	for name, value := range map[string]string{"pid": e.PID, "method": e.Method} {
		if strings.Contains(value, separator) {
			return fmt.Errorf("%s must not contain an ampersand", name)
		}
	}
	return nil
}

// currency returns the currency of the service.
func (e *Epay) currency() string { return cmp.Or(e.Currency, "CNY") }

// CheckCurrency implements payments.CurrencyChecker.
func (e *Epay) CheckCurrency(currency string) error {
	if own := e.currency(); currency != own {
		return fmt.Errorf("the service takes %s, not %s", own, currency)
	}
	return nil
}

func checkCurrency(code string) error {
	if len(code) != 3 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return fmt.Errorf("currency is three capital letters such as CNY, not %q", code)
	}
	return nil
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	payment epay {
//		url      <url>
//		pid      <number>
//		key      <key>
//		method   alipay|wxpay|...
//		currency <code>
//	}
func (e *Epay) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"url":    settings.Text(&e.URL),
		"pid":    settings.Text(&e.PID),
		"key":    settings.Text(&e.Key),
		"method": settings.Text(&e.Method),
		"currency": func(value string) error {
			e.Currency = value
			return checkCurrency(value)
		},
	}.Unmarshal(d)
}

// Acknowledgement implements payments.Provider. The protocol requires this text.
func (*Epay) Acknowledgement() (body, contentType string) {
	return "success", "text/plain; charset=utf-8"
}

// Methods implements payments.Provider. A service uses one of them.
func (*Epay) Methods() []string { return []string{http.MethodGet, http.MethodPost} }

// Interface guards
var (
	_ caddy.Provisioner     = (*Epay)(nil)
	_ caddy.Validator       = (*Epay)(nil)
	_ caddyfile.Unmarshaler = (*Epay)(nil)
	_ payments.Provider     = (*Epay)(nil)
)
