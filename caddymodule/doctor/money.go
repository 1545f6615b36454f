package doctor

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// checkPrices looks for models whose calls are all refused or all free.
func checkPrices(config any) []Finding {
	prices, _ := at(config, "apps", "modelgate", "prices").([]any)
	plans, _ := at(config, "apps", "modelgate", "plans").([]any)
	if len(prices) == 0 {
		if len(plans)+len(paymentsOf(config)) == 0 {
			return nil
		}
		return []Finding{{
			"warning", "apps.modelgate", "plans or top-ups are sold, and no model has a price: every call is free",
			"add a price block for what is sold: price <pattern> { input … output … context … max_output … }",
		}}
	}
	if at(config, "apps", "modelgate", "unpriced") == caddymodule.AllowUnpriced {
		return nil
	}
	var priced catalog.Patterns
	for _, price := range prices {
		pattern, _ := at(price, "model").(string)
		priced = append(priced, catalog.Pattern(pattern))
	}
	var findings []Finding
	walk(config, "", func(path string, object map[string]any) {
		if handler, _ := object["handler"].(string); handler != "modelgate_messages" && handler != "modelgate_completions" {
			return
		}
		models, _ := object["models"].([]any)
		for _, model := range models {
			if name, _ := model.(string); !priced.Match(name) {
				findings = append(findings, Finding{
					"warning", path + ".models", fmt.Sprintf("%s is listed and has no price: every call of it is refused", name),
					"give it a price, take it off the list, or let models without a price be free: unpriced allow",
				})
			}
		}
	})
	return findings
}

// paymentSecrets are the fields of payment services that hold a secret.
var paymentSecrets = []string{"key", "secret", "secret_key", "webhook_secret"}

// checkPayments looks for payment services that cannot work or that give away money, and
// for secrets in clear.
func checkPayments(config any) []Finding {
	var findings []Finding
	names := paymentsOf(config)
	if len(names) > 0 && !hasHandler(config, "modelgate_console") {
		findings = append(findings, Finding{
			"error", "apps.modelgate.payments", "there is no modelgate_console: users cannot order, and the gateway gets no notices of payments",
			"add modelgate_console to the site that base_url names",
		})
	}
	if slices.Contains(names, "demo") {
		findings = append(findings, Finding{
			"warning", "apps.modelgate.payments", "the demo payment service lets every user fill the wallet without paying",
			"remove payment demo before users have access to this gateway",
		})
	}
	services, _ := at(config, "apps", "modelgate", "payments").([]any)
	for i, service := range services {
		for _, name := range paymentSecrets {
			if secret := at(service, name); secret != nil && inClear(secret) {
				findings = append(findings, Finding{
					"warning", fmt.Sprintf("apps.modelgate.payments[%d].%s", i, name),
					"a secret of the payment service is in clear in the configuration, which Caddy saves and shows at its admin endpoint",
					fromElsewhere,
				})
			}
		}
	}
	return findings
}

// checkBaseURL looks for a site to which users would send passwords, keys and tokens in
// clear.
func checkBaseURL(config any) []Finding {
	base, _ := at(config, "apps", "modelgate", "base_url").(string)
	if u, err := url.Parse(base); base == "" || err != nil || u.Scheme != "http" || isLoopback(u.Hostname()) || strings.HasSuffix(u.Hostname(), ".localhost") {
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
	services, _ := at(config, "apps", "modelgate", "payments").([]any)
	for _, service := range services {
		if name, ok := at(service, "provider").(string); ok {
			names = append(names, name)
		}
	}
	return names
}
