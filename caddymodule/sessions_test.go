package caddymodule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/identity"
)

func TestPasskeysAreOnlyForTheConfiguredSite(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]struct {
		id      string // empty: there are none
		origins []string
	}{
		`{}`:                                                                      {"", nil},
		`{"base_url":"https://ai.example.com"}`:                                   {"ai.example.com", []string{"https://ai.example.com"}},
		`{"base_url":"https://x.example:8443"}`:                                   {"x.example", []string{"https://x.example:8443"}},
		`{"base_url":"http://localhost:8080"}`:                                    {"localhost", []string{"http://localhost:8080"}},
		`{"base_url":"http://a.localhost"}`:                                       {"a.localhost", []string{"http://a.localhost"}},
		`{"base_url":"http://ai.example.com"}`:                                    {"", nil},
		`{"base_url":"http://127.0.0.1:8080"}`:                                    {"", nil},
		`{"base_url":"https://192.0.2.1"}`:                                        {"", nil},
		`{"base_url":"https://[2001:db8::1]"}`:                                    {"", nil},
		`{"base_url":"https://AI.example.com"}`:                                   {"", nil},
		`{"base_url":"https://github.io"}`:                                        {"", nil},
		`{"base_url":"https://ai.example.com","passkey":{"rp_id":"example.com"}}`: {"example.com", []string{"https://ai.example.com"}},
		`{"base_url":"https://ai.example.com","passkey":{"origins":["https://b.example","https://a.b.example"]}}`: {"b.example", []string{"https://b.example", "https://a.b.example"}},
	} {
		rp, off := mustProvision(t, config).RelyingParty()
		if rp.ID != want.id || !slices.Equal(rp.Origins, want.origins) || (off != nil) != (want.id == "") {
			t.Errorf("%s: %+v, %v; want %+v", config, rp, off, want)
		}
	}
}

func TestTheCookieIsNamedByTheSchemeOfTheSite(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{}`:                                   "modelgate_session",
		`{"base_url":"http://localhost:8080"}`: "modelgate_session",
		`{"base_url":"https://a.example"}`:     "__Host-modelgate_session",
		`{"base_url":"https://a.example","session":{"cookie":"acme"}}`: "__Host-acme",
		`{"session":{"cookie":"acme"}}`:                                "acme",
	} {
		name, secure := mustProvision(t, config).Cookie()
		if name != want || secure != (name[:2] == "__") {
			t.Errorf("%s: %s, %v; want %s", config, name, secure, want)
		}
	}
}

// A limit above the maximum is refused, not reduced.
func TestLoginLimitsAboveTheMaximumAreRefused(t *testing.T) {
	t.Parallel()
	app := mustProvision(t, `{"limits":{"login_per_user":1000,"login_per_address":1000}}`)
	if limits := app.LoginLimits(); limits != (identity.LoginLimits{PerUser: identity.MaxLoginLimit, PerAddress: identity.MaxLoginLimit}) {
		t.Errorf("%+v", limits)
	}
	for _, limit := range []string{"login_per_user", "login_per_address"} {
		_, err := provision(t, fmt.Sprintf(`{"limits":{%q:1001}}`, limit))
		if err == nil || !strings.Contains(err.Error(), limit+" is 1001; allowed: 1 to 1000") {
			t.Errorf("%s of 1001: %v", limit, err)
		}
	}
}
