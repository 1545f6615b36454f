package caddymodule_test

import (
	"slices"
	"strings"
	"testing"
)

const stripeSecrets = `"secret_key":"sk_test_1","webhook_secret":"whsec_1"`

func TestPaymentServicesAreFoundByTheirNames(t *testing.T) {
	t.Parallel()
	app := mustProvision(t, `{"base_url":"https://ai.example.com","payments":[{"provider":"stripe",`+stripeSecrets+`},{"provider":"demo"}]}`)
	if names := app.Payments(); !slices.Equal(names, []string{"demo", "stripe"}) {
		t.Errorf("the payment services are %q", names)
	}
	for name, want := range map[string]bool{"demo": true, "stripe": true, "epay": false, "": false, "Demo": false} {
		if provider, ok := app.Payment(name); ok != want || (provider != nil) != want {
			t.Errorf("%q is found: %v", name, ok)
		}
	}
}

func TestTopUpsHaveBoundsByDefault(t *testing.T) {
	t.Parallel()
	app := mustProvision(t, `{}`)
	if app.TopUp.Min.String() != "1.00" || app.TopUp.Max.String() != "10000.00" || len(app.Payments()) != 0 {
		t.Errorf("the amounts are %v to %v, the services %q", app.TopUp.Min, app.TopUp.Max, app.Payments())
	}
}

func TestPaymentsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	const base = `"base_url":"https://ai.example.com"`
	for config, want := range map[string]string{
		`{"payments":[{"provider":"demo"}]}`:                                                                                              "needs base_url",
		`{` + base + `,"payments":[{"provider":"demo"},{"provider":"demo"}]}`:                                                             "payment demo is given twice",
		`{` + base + `,"payments":[{"provider":"cowries"}]}`:                                                                              "unknown module",
		`{` + base + `,"payments":[{}]}`:                                                                                                  "provider",
		`{` + base + `,"payments":[{"provider":"stripe"}]}`:                                                                               "webhook_secret is missing",
		`{` + base + `,"payments":[{"provider":"epay","url":"https://x.example","pid":"1","key":"k"}]}`:                                   "payment epay: the currency of the gateway: the service takes CNY, not USD",
		`{` + base + `,"currency":"EUR","payments":[{"provider":"epay","url":"https://x.example","pid":"1","key":"k","currency":"CNY"}]}`: "the service takes CNY, not EUR",
		`{` + base + `,"currency":"UGX","payments":[{"provider":"stripe",` + stripeSecrets + `}]}`:                                        "payment stripe: the currency of the gateway: the currency UGX is not supported",
		`{"topup":{"min":"20000.00"}}`:                                                                                                    "max at least min",
		`{"topup":{"min":"-1.00"}}`:                                                                                                       "amounts above zero",
	} {
		if _, err := provision(t, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}
