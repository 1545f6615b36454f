package stripe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
	"github.com/caddy-modelgate/modelgate/settings"
)

const (
	testKey = "sk_test_hush"
	liveKey = "sk_live_hush"
	signing = "whsec_hush"
)

// provisioned returns a module with a key.
func provisioned(t testing.TB, key settings.Secret, apiURL string) *Stripe {
	t.Helper()
	s := &Stripe{SecretKey: key, WebhookSecret: signing, APIURL: apiURL}
	if err := paymentstest.Provision(t, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestModuleIsRegistered(t *testing.T) {
	t.Parallel()
	paymentstest.Registered[payments.Provider](t, "modelgate.payments.stripe")
}

func TestCaddyfileBecomesJSON(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *Stripe { return new(Stripe) }, map[string]string{
		"stripe {\nsecret_key {env.KEY}\nwebhook_secret {file./etc/secret}\n}": `{"secret_key":"{env.KEY}","webhook_secret":"{file./etc/secret}"}`,
		"stripe {\nsecret_key a\nwebhook_secret b\napi_url http://[::1]:1\n}":  `{"secret_key":"a","webhook_secret":"b","api_url":"http://[::1]:1"}`,
		"stripe hush":                                  ``,
		"stripe {\nsecret_key\n}":                      ``,
		"stripe {\nsecret_key \"\"\n}":                 ``,
		"stripe {\nsecret_key hush hush\n}":            ``,
		"stripe {\nsecret_key hush\nsecret_key hush\n": ``,
		"stripe {\nwebhook_secret hush hush\n}":        ``,
		"stripe {\npublishable_key hush\n}":            ``,
	})
}

func TestProvisionRefusesMissingSettings(t *testing.T) {
	t.Setenv("EMPTY", "")
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("whsec_from_a_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		module Stripe
		want   string // part of the error; empty: no error
	}{
		{"no settings", Stripe{}, "secret_key is missing\nwebhook_secret is missing"},
		{"no webhook secret", Stripe{SecretKey: testKey}, "webhook_secret is missing"},
		{"no key", Stripe{WebhookSecret: signing}, "secret_key is missing"},
		{"a key that resolves to nothing", Stripe{SecretKey: "{env.EMPTY}", WebhookSecret: signing}, "secret_key"},
		{"a webhook secret that resolves to nothing", Stripe{SecretKey: testKey, WebhookSecret: "{env.EMPTY}"}, "webhook_secret"},
		{"a webhook secret of blanks", Stripe{SecretKey: testKey, WebhookSecret: " "}, "webhook_secret is empty"},
		{"a publishable key", Stripe{SecretKey: "pk_test_hush", WebhookSecret: signing}, "must begin with"},
		{"a short key", Stripe{SecretKey: "sk", WebhookSecret: signing}, "must begin with"},
		{"a live key and another address", Stripe{SecretKey: liveKey, WebhookSecret: signing, APIURL: "https://api.example.com"}, "with a live secret_key"},
		{"a relative address", Stripe{SecretKey: testKey, WebhookSecret: signing, APIURL: "api.example.com"}, "api_url"},
		{"a test key", Stripe{SecretKey: testKey, WebhookSecret: signing}, ""},
		{"a restricted key", Stripe{SecretKey: "rk_live_hush", WebhookSecret: signing}, ""},
		{"a secret in a file", Stripe{SecretKey: liveKey, WebhookSecret: settings.Secret("{file." + file + "}")}, ""},
	} {
		err := paymentstest.Provision(t, &row.module)
		switch {
		case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: got %v, want %q", row.name, err, row.want)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: the error contains a secret: %v", row.name, err)
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	s := provisioned(t, testKey, "")
	for _, format := range []string{"%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(format, s); strings.Contains(text, "hush") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

func TestAcknowledgementAndMethodOfStripe(t *testing.T) {
	t.Parallel()
	s := new(Stripe)
	if body, kind := s.Acknowledgement(); body == "" || kind != "application/json" {
		t.Errorf("the acknowledgement is %q of type %s", body, kind)
	}
	if got := fmt.Sprint(s.Methods()); got != "[POST]" {
		t.Errorf("the methods are %s", got)
	}
}
