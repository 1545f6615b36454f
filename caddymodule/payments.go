package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/settings"
)

// PaymentsNamespace is the namespace of the Caddy modules for payment services.
const PaymentsNamespace = "modelgate.payments"

// TopUp configures the bounds of one payment into a wallet.
type TopUp struct {
	// The minimum amount of one order; more than zero. Default: 1.00.
	Min money.Amount `json:"min,omitempty"`

	// The maximum amount of one order. Default: 10000.00.
	Max money.Amount `json:"max,omitempty"`
}

func (t *TopUp) setDefaults() {
	t.Min = cmp.Or(t.Min, money.Unit)
	t.Max = cmp.Or(t.Max, 10_000*money.Unit)
}

func (t *TopUp) validate() error {
	if t.Min < 0 || t.Max < t.Min {
		return fmt.Errorf("topup: min is %v and max is %v; allowed: amounts above zero, and max at least min", t.Min, t.Max)
	}
	return nil
}

// provisionPayments loads the payment services.
func (a *App) provisionPayments(ctx caddy.Context) error {
	a.TopUp.setDefaults()
	if err := a.TopUp.validate(); err != nil {
		return err
	}
	a.payments = make(map[string]payments.Provider)
	if len(a.PaymentsRaw) == 0 {
		return nil
	}
	if a.BaseURL == "" {
		return errors.New("payment needs base_url, such as https://ai.example.com: payment services send users and notices there")
	}
	loaded, err := ctx.LoadModule(a, "PaymentsRaw")
	if err != nil {
		return fmt.Errorf("loading the payment services: %w", err)
	}
	for _, module := range loaded.([]any) {
		name := module.(caddy.Module).CaddyModule().ID.Name()
		provider, ok := module.(payments.Provider)
		if !ok {
			return fmt.Errorf("payment %s: the module %T is not a payment service", name, module)
		}
		if checker, ok := provider.(payments.CurrencyChecker); ok {
			if err := checker.CheckCurrency(a.Currency); err != nil {
				return fmt.Errorf("payment %s: the currency of the gateway: %w", name, err)
			}
		}
		if _, twice := a.payments[name]; twice {
			return fmt.Errorf("payment %s is given twice", name)
		}
		a.payments[name] = provider
	}
	return nil
}

// Payment returns the payment service of this name, if it is configured.
func (a *App) Payment(name string) (payments.Provider, bool) {
	provider, ok := a.payments[name]
	return provider, ok
}

// Payments returns the names of the payment services, sorted.
func (a *App) Payments() []string { return slices.Sorted(maps.Keys(a.payments)) }

// unmarshalPayment returns a reader of one payment service:
//
//	payment <provider> {
//		...
//	}
func (a *App) unmarshalPayment() func(*caddyfile.Dispenser) error {
	seen := make(map[string]bool)
	return func(d *caddyfile.Dispenser) error {
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		if seen[name] {
			return d.Errf("payment %s is given twice", name)
		}
		seen[name] = true
		module, err := caddyfile.UnmarshalModule(d, PaymentsNamespace+"."+name)
		if err != nil {
			return err
		}
		a.PaymentsRaw = append(a.PaymentsRaw, caddyconfig.JSONModuleObject(module, "provider", name, nil))
		return nil
	}
}

// unmarshalCaddyfile reads
//
//	topup {
//		min <amount>
//		max <amount>
//	}
func (t *TopUp) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Block(d, map[string]settings.Reader{
		"min": settings.Parsed(&t.Min, parsePositiveAmount),
		"max": settings.Parsed(&t.Max, parsePositiveAmount),
	})
}

func parsePositiveAmount(word string) (money.Amount, error) {
	a, err := parseAmount(word)
	if err == nil && a == 0 {
		err = errors.New("the amount is zero; allowed: amounts above zero")
	}
	return a, err
}
