package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/caddymodule/starter"
	"github.com/caddy-modelgate/modelgate/payments"
)

// paymentSecrets are the fields of payment services that hold a secret.
var paymentSecrets = []string{"key", "secret", "secret_key", "webhook_secret"}

// checkPayments searches for payment services that cannot work or that give away money,
// and for secrets in clear.
func checkPayments(config any) []Finding {
	var findings []Finding
	names := paymentsOf(config)
	if len(names) > 0 && !hasHandler(config, "modelgate_console") {
		findings = append(findings, Finding{
			"error", "apps.modelgate.payments", "modelgate_console is missing: users cannot order, and the gateway gets no notices of payments",
			"add modelgate_console to the site that base_url names",
		})
	}
	if slices.Contains(names, "demo") {
		findings = append(findings, Finding{
			"warning", "apps.modelgate.payments", "the demo payment service lets every user fill the wallet without paying",
			"remove payment demo before users have access to this gateway",
		})
	}
	currency := get[string](config, "apps", "modelgate", "currency")
	for i, service := range get[[]any](config, "apps", "modelgate", "payments") {
		if err := checkCurrency(service, cmp.Or(currency, caddymodule.DefaultCurrency)); err != nil {
			findings = append(findings, Finding{
				"error", fmt.Sprintf("apps.modelgate.payments[%d]", i), err.Error() + ": the configuration does not start",
				"set currency in the modelgate option to that of the service, or use another service",
			})
		}
		for _, name := range paymentSecrets {
			if secret := at(service, name); secret != nil && inClear(secret) {
				findings = append(findings, Finding{
					"warning", fmt.Sprintf("apps.modelgate.payments[%d].%s", i, name),
					"a secret of the payment service is in clear in the configuration, which Caddy saves and shows at its admin endpoint",
					usePlaceholder,
				})
			}
		}
	}
	return findings
}

// checkCurrency returns an error if a payment service does not take the currency of the
// gateway.
func checkCurrency(service any, currency string) error {
	name := get[string](service, "provider")
	info, err := caddy.GetModule(caddymodule.PaymentsNamespace + "." + name)
	if err != nil {
		return nil // Caddy reports it when it starts the configuration
	}
	raw, err := json.Marshal(service)
	if err != nil {
		return err
	}
	module := info.New()
	checker, ok := module.(payments.CurrencyChecker)
	if !ok || json.Unmarshal(raw, module) != nil {
		return nil
	}
	if err := checker.CheckCurrency(currency); err != nil {
		return fmt.Errorf("payment %s: the currency of the gateway: %w", name, err)
	}
	return nil
}

// checkBaseURL searches for a site to which users would send passwords, keys and tokens
// in clear.
func checkBaseURL(config any) []Finding {
	base := get[string](config, "apps", "modelgate", "base_url")
	if u, err := url.Parse(base); base == "" || err != nil || u.Scheme != "http" || starter.IsLoopback(u.Hostname()) {
		return nil
	}
	level := "warning"
	if hasHandler(config, "modelgate_console") {
		level = "error" // users send passwords there
	}
	return []Finding{{
		level, "apps.modelgate.base_url", base + " is not encrypted: others on the network can read passwords and session cookies, and change payments",
		"serve the site over https and set base_url to its address",
	}}
}

// paymentsOf returns the names of the payment services.
func paymentsOf(config any) (names []string) {
	for _, service := range get[[]any](config, "apps", "modelgate", "payments") {
		if name, ok := at(service, "provider").(string); ok {
			names = append(names, name)
		}
	}
	return names
}
