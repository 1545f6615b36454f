package caddymodule_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// provision creates an app from JSON and provisions it, as Caddy does.
func provision(t *testing.T, config string) (*caddymodule.App, error) {
	t.Helper()
	app := new(caddymodule.App)
	decoder := json.NewDecoder(strings.NewReader(config))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(app); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	if err := app.Provision(ctx); err != nil {
		return nil, err
	}
	return app, app.Validate()
}

func mustProvision(t *testing.T, config string) *caddymodule.App {
	t.Helper()
	app, err := provision(t, config)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

const (
	free        = 0
	unavailable = -1
)

func TestPricesOfModels(t *testing.T) {
	t.Parallel()
	const prices = `"prices":[{"model":"a","request":"0.000000005"},{"model":"b-*","request":"0.000000006"}]`
	for name, c := range map[string]struct {
		config string
		want   map[string]money.Amount
	}{
		"no prices":              {`{}`, map[string]money.Amount{"a": free, "x": free}},
		"no prices, refuse":      {`{"unpriced":"refuse"}`, map[string]money.Amount{"a": free, "x": free}},
		"prices":                 {`{` + prices + `}`, map[string]money.Amount{"a": 5, "b-1": 6, "x": unavailable, "": unavailable}},
		"prices, refuse":         {`{` + prices + `,"unpriced":"refuse"}`, map[string]money.Amount{"a": 5, "x": unavailable}},
		"prices, allow":          {`{` + prices + `,"unpriced":"allow"}`, map[string]money.Amount{"a": 5, "b-1": 6, "x": free}},
		"a price for all models": {`{"prices":[{"model":"*","request":"0.000000007"}]}`, map[string]money.Amount{"a": 7, "x": 7}},
	} {
		app := mustProvision(t, c.config)
		for model, want := range c.want {
			got := money.Amount(unavailable)
			if price, ok := app.PriceOf(model, catalog.NoUnit); ok && price == nil {
				got = free
			} else if ok {
				got = price.Request
			}
			if got != want {
				t.Errorf("%s: %q costs %d, want %d", name, model, got, want)
			}
		}
	}
}

func TestExactPriceNamesAreListedAsModels(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{
		App:  "unpriced allow\nprice priced-1 {\nrequest 1\n}\nprice priced-* {\nrequest 1\n}",
		Site: gatetest.Proxied,
	})
	var list struct{ Data []struct{ ID string } }
	answer := g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+g.NewKey(t, nil).Secret, "")
	if err := json.Unmarshal([]byte(answer.Body), &list); err != nil || len(list.Data) != 1 || list.Data[0].ID != "priced-1" {
		t.Errorf("listed %s", answer.Body)
	}
}

func TestMoneyHasDefaults(t *testing.T) {
	t.Parallel()
	app := mustProvision(t, `{"plans":[
		{"plan_id":7,"title":"B","price":"0","quota":"1","duration":{"count":1,"unit":"month"}},
		{"plan_id":3,"title":"A","price":"1","quota":"1","duration":{"count":1,"unit":"day"},"quota_reset":"day","disabled":true}]}`)
	if app.Currency != "USD" || app.Unpriced != "refuse" || app.BaseURL != "" || app.Prices().Len() != 0 {
		t.Errorf("currency %q, unpriced %q, base_url %q, %d prices", app.Currency, app.Unpriced, app.BaseURL, app.Prices().Len())
	}
	if plan, ok := app.Plans().Find(7); !ok || plan.QuotaReset != calendar.Never || len(app.Plans().OnSale()) != 1 {
		t.Errorf("plan 7 is %+v, %v; the plans on sale are %v", plan, ok, app.Plans().OnSale())
	}
}

func TestJSONIsValidatedLikeACaddyfile(t *testing.T) {
	t.Parallel()
	const plan = `{"plan_id":1,"title":"A","price":"1","quota":"1","duration":{"count":1,"unit":"day"}}`
	for config, want := range map[string]string{
		`{"prices":[{"model":"a","input":"1","output":"1"}]}`:                  "price a: a price per token needs context and max_output",
		`{"prices":[{"model":"a","request":"1"},{"model":"a","request":"2"}]}`: "price a is given twice",
		`{"prices":[{"model":"a b","request":"1"}]}`:                           "printable ASCII",
		`{"plans":[` + plan + `,` + plan + `]}`:                                "plan 1 is given twice",
		`{"plans":[{"plan_id":1}]}`:                                            "plan 1: the title has 1 to 100 characters",
		`{"currency":"usd"}`:                                                   "ISO 4217",
		`{"currency":"EURO"}`:                                                  "ISO 4217",
		`{"unpriced":"free"}`:                                                  "allowed: allow, refuse",
		`{"aliases":{"a":"b","b":"c","d":"c"}}`:                                "alias a: the target b is itself an alias, of c",
		`{"aliases":{"a*":"b"}}`:                                               `alias a*: "a*" is a pattern`,
		`{"aliases":{"a":""}}`:                                                 "alias a: a model pattern has 1 to 256 characters",
		`{"prices":[{"model":"a","request":"1"}],"aliases":{"a":"b"}}`:         "alias a: it has a price, but its calls have the price of b: remove price a",
		`{"base_url":"https://"}`:                                              "base_url",
		`{"base_url":"https://:443"}`:                                          "base_url",
		`{"base_url":"HTTPS://a.example"}`:                                     "base_url",
		`{"base_url":"https://a.example#x"}`:                                   "base_url",
		`{"limits":{"streams":-1}}`:                                            "limits: streams is -1; allowed: 1 to 1000000",
		`{"limits":{"requests_per_second":1000001}}`:                           "limits: requests_per_second is 1000001; allowed: 1 to 1000000",
		`{"limits":{"tokens_per_minute":1000000001}}`:                          "limits: tokens_per_minute is 1000000001; allowed: 1 to 1000000000",
	} {
		if _, err := provision(t, config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", config, err, want)
		}
	}
	for _, url := range []string{"http://a.example", "https://a.example:8443", "http://[::1]:80", "http://127.0.0.1"} {
		mustProvision(t, `{"base_url":"`+url+`"}`)
	}
}

func TestOperatorLimitsReplaceDefaultsAndOwnerLimitsOnlyLower(t *testing.T) {
	t.Parallel()
	limits := caddymodule.Limits{RequestsPerSecond: 10, Streams: 20, TokensPerMinute: 30}
	for _, c := range []struct {
		operator, owner identity.Limits
		want            limit.Rates
	}{
		{identity.Limits{}, identity.Limits{}, limit.Rates{Requests: limit.PerSecond(10), Units: limit.PerMinute(30), Concurrent: 20}},
		{identity.Limits{RequestsPerSecond: 99}, identity.Limits{}, limit.Rates{Requests: limit.PerSecond(99), Units: limit.PerMinute(30), Concurrent: 20}},
		{identity.Limits{Streams: 1, TokensPerMinute: 2}, identity.Limits{}, limit.Rates{Requests: limit.PerSecond(10), Units: limit.PerMinute(2), Concurrent: 1}},
		{identity.Limits{}, identity.Limits{RequestsPerSecond: 1_000_000, Streams: 3}, limit.Rates{Requests: limit.PerSecond(10), Units: limit.PerMinute(30), Concurrent: 3}},
		{identity.Limits{RequestsPerSecond: 99}, identity.Limits{RequestsPerSecond: 50, Streams: 21}, limit.Rates{Requests: limit.PerSecond(50), Units: limit.PerMinute(30), Concurrent: 20}},
	} {
		p := &identity.Principal{OperatorLimits: c.operator, OwnerLimits: c.owner}
		if got := limits.OfKey(p); got != c.want {
			t.Errorf("operator %+v, owner %+v: got %+v, want %+v", c.operator, c.owner, got, c.want)
		}
	}
	if got := new(caddymodule.Limits).OfKey(&identity.Principal{OwnerLimits: identity.Limits{Streams: 7}}); got != (limit.Rates{Concurrent: 7}) {
		t.Errorf("only owner limits: got %+v", got)
	}
}

func TestPlansKeepTheOrderOfTheCaddyfile(t *testing.T) {
	t.Parallel()
	adapted, err := gatetest.Adapt("{\nmodelgate {\nplan 9 A {\nprice 1\nquota 1\nduration 1 month\n}\nplan 1 B {\nprice 1\nquota 1\nduration 2 years\n}\n}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Apps struct{ Modelgate json.RawMessage }
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, plan := range mustProvision(t, string(config.Apps.Modelgate)).Plans().OnSale() {
		titles = append(titles, plan.Title)
	}
	if !slices.Equal(titles, []string{"A", "B"}) {
		t.Errorf("the plans on sale are %q", titles)
	}
}

// TestTheGuideStatesTheCostOfItsExample charges the call that the guide describes, at the
// price of the guide.
func TestTheGuideStatesTheCostOfItsExample(t *testing.T) {
	t.Parallel()
	text := readme(t)
	_, example, ok := strings.Cut(text, "**The order of application:**")
	if !ok {
		t.Fatal("the guide has no example")
	}
	adapted, err := gatetest.Adapt(codeOf(example, "caddyfile")[0])
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Apps struct{ Modelgate json.RawMessage }
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	price, ok := mustProvision(t, string(config.Apps.Modelgate)).PriceOf("gpt-6", catalog.NoUnit)
	if !ok {
		t.Fatal("gpt-6 has no price")
	}
	bounds, refused := price.Bounds(catalog.CallSpec{Tools: []catalog.ServerTool{{Param: "tools[0].type", Name: "web_search"}}})
	if refused != nil {
		t.Fatal(refused)
	}
	charge := price.Charge(bounds, &usage.Report{
		Tokens: usage.Tokens{Input: 200_000, CacheRead: 100_000, Output: 2000}, Tier: "flex", Geo: "us",
		Tools: []usage.ToolUse{{Name: "web_search", Uses: 2}}, CountsTools: true,
	})
	if want := "the call costs " + charge.Amount.String() + "."; !strings.Contains(example, want) {
		t.Errorf("the guide does not say %q", want)
	}
}
