// Package demo is a payment service without money, for trying payments without an account at a real
// service. It has a page with buttons instead of a card form, and sends signed notices over HTTP.
//
// [Demo] is the Caddy module. page.go serves the page, delivery.go sends notices, and notice.go
// encodes and decodes them.
package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Demo))
}

// Demo is a payment service without money: anyone who opens the page of an
// order can press a button that pays it. Use it for trying and testing only,
// because it gives away credit.
type Demo struct {
	// Secret signs the notices. Placeholders are resolved, such as `{env.X}`.
	// Default: a random secret of the process, so that a page that was opened before a
	// reload of the configuration works after it.
	Secret settings.Secret `json:"secret,omitempty"`

	// Delay is the time after which the button "pay later" sends the notice, at
	// most 10 minutes. A reload of the configuration drops waiting notices.
	// Default: 5s.
	Delay caddy.Duration `json:"delay,omitempty"`

	pooled  bool // the secret is from the pool
	client  *http.Client
	waiting chan struct{}   // one element per waiting notice
	ctx     context.Context // ended by Cleanup
	cancel  context.CancelFunc
	now     func() time.Time
	logger  *zap.Logger
}

// Default and maximum of the delay.
const (
	defaultDelay = 5 * time.Second
	maxDelay     = 10 * time.Minute
)

// CaddyModule returns the Caddy module information.
func (*Demo) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.payments.demo", New: func() caddy.Module { return new(Demo) }}
}

// secrets has the random secret that is used if none is configured. On a reload, the new
// configuration loads it before the old one releases it.
var secrets = caddy.NewUsagePool()

// pooledSecret is a secret in the pool.
type pooledSecret settings.Secret

// Destruct implements caddy.Destructor.
func (pooledSecret) Destruct() error { return nil }

// Provision resolves or creates the secret and sets the defaults.
func (d *Demo) Provision(ctx caddy.Context) error {
	d.logger = ctx.Logger()
	d.Delay = cmp.Or(d.Delay, caddy.Duration(defaultDelay))
	if d.Secret == "" {
		value, _, err := secrets.LoadOrNew("secret", func() (caddy.Destructor, error) {
			return pooledSecret(rand.Text()), nil
		})
		if err != nil {
			return err
		}
		d.pooled = true
		d.Secret = settings.Secret(value.(pooledSecret))
	} else if err := settings.Resolve("secret", &d.Secret); err != nil {
		return err
	}

	// Notices are sent to the address in the order, which is the gateway's own.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	d.client = &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	d.waiting = make(chan struct{}, maxWaiting)
	d.ctx, d.cancel = context.WithCancel(ctx)
	d.now = time.Now
	d.logger.Warn("the demo payment service fills wallets without money; it is for trying only")
	return nil
}

// Validate checks the bounds of the configuration.
func (d *Demo) Validate() error { return checkDelay(time.Duration(d.Delay)) }

func checkDelay(delay time.Duration) error {
	if delay < time.Millisecond || delay > maxDelay {
		return fmt.Errorf("delay is from 1ms to %s, not %s", maxDelay, delay)
	}
	return nil
}

// Cleanup drops waiting notices, and waits until their goroutines have ended.
func (d *Demo) Cleanup() error {
	if d.cancel != nil {
		d.cancel()
		for range maxWaiting {
			d.waiting <- struct{}{}
		}
		for range maxWaiting {
			<-d.waiting
		}
		d.client.CloseIdleConnections()
	}
	if d.pooled {
		d.pooled = false
		_, err := secrets.Delete("secret")
		return err
	}
	return nil
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	payment demo {
//		secret <secret>
//		delay  <duration>
//	}
func (d *Demo) UnmarshalCaddyfile(dispenser *caddyfile.Dispenser) error {
	return settings.Words{
		"secret": settings.Text(&d.Secret),
		"delay": func(value string) error {
			delay, err := caddy.ParseDuration(value)
			if err != nil {
				return fmt.Errorf("delay is a duration such as 5s, not %q", value)
			}
			d.Delay = caddy.Duration(delay)
			return checkDelay(delay)
		},
	}.Unmarshal(dispenser)
}

// cent is the smallest amount that can be paid, as at real services.
const cent = money.Unit / 100

// Checkout implements payments.Provider. [Demo.ServePage] serves the page, whose path is next to that
// of the webhook.
func (d *Demo) Checkout(_ context.Context, o payments.Order) (payments.Page, error) {
	if o.Amount%cent != 0 {
		return payments.Page{}, fmt.Errorf("%w: %s %s is not a multiple of %s", payments.ErrAmount, o.Amount, o.Currency, cent)
	}
	base, found := strings.CutSuffix(o.NotifyURL, "/webhook")
	if !found {
		return payments.Page{}, errors.New("the address of the webhook does not end in /webhook")
	}
	return payments.Page{URL: base + "/page/" + o.TradeNo, Reference: paymentOf(o)}, nil
}

// Acknowledgement implements payments.Provider.
func (*Demo) Acknowledgement() (body, contentType string) {
	return `{"received":true}`, "application/json"
}

// Methods implements payments.Provider.
func (*Demo) Methods() []string { return []string{http.MethodPost} }

// Interface guards
var (
	_ caddy.Provisioner     = (*Demo)(nil)
	_ caddy.Validator       = (*Demo)(nil)
	_ caddy.CleanerUpper    = (*Demo)(nil)
	_ caddyfile.Unmarshaler = (*Demo)(nil)
	_ payments.Provider     = (*Demo)(nil)
	_ payments.Pager        = (*Demo)(nil)
)
