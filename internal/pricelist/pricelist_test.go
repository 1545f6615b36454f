package pricelist_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/pricelist"
	"github.com/caddy-modelgate/modelgate/money"
)

func options(provider string, models ...string) pricelist.Options {
	return pricelist.Options{Provider: provider, Models: models, Factor: money.Unit, Date: "2026-11-24"}
}

func readFile(t *testing.T, name string, o pricelist.Options) *pricelist.List {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pricelist.Read(text, o)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// blocks returns the text of all prices.
func blocks(list *pricelist.List) (text string) {
	for i := range list.Prices {
		text += pricelist.Block(&list.Prices[i]) + "\n"
	}
	return text
}

// adapted returns the prices that Caddy's adapter reads from the text of an imported file. There
// must be nothing else in the configuration.
func adapted(t *testing.T, text string) (prices []catalog.Price) {
	t.Helper()
	raw, err := gatetest.Adapt("{\nmodelgate {\n" + text + "\n}\n}\n")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var config map[string]map[string]map[string]json.RawMessage
	if err := json.Unmarshal(raw, &config); err != nil || len(config) != 1 || len(config["apps"]) != 1 || len(config["apps"]["modelgate"]) != 1 {
		t.Fatalf("the configuration has more than prices (%v): %s", err, raw)
	}
	if err := json.Unmarshal(config["apps"]["modelgate"]["prices"], &prices); err != nil {
		t.Fatal(err)
	}
	return prices
}

func reasons(list *pricelist.List) (lines []string) {
	for _, s := range list.Skipped {
		lines = append(lines, fmt.Sprintf("%q: %s", s.Model, s.Reason))
	}
	return lines
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, provider, models, want string
	}{
		{"modelsdev.json", "", "", "acme-small lab/other:free"}, // the providers have different prices of acme-large
		{"modelsdev.json", "reseller", "", "acme-large acme-small lab/other:free"},
		{"modelsdev.json", "", "acme/acme-large", "acme-large"},
		{"modelsdev.json", "", "*other*", "lab/other:free"},
		{"modelsdev.json", "acme", "acme-l*,nothing", "acme-large"},
		{"modelsdev.json", "nobody", "", ""},
		{"litellm.json", "cloud", "", "acme-1"},
		{"litellm.json", "cloud-acme_models", "", "acme-1"},
		{"litellm.json", "acme", "acme-3", ""},
		{"litellm.json", "acme", "acme/acme-3", "acme-3"},
	} {
		o := options(c.provider)
		if c.models != "" {
			o.Models = strings.Split(c.models, ",")
		}
		var names []string
		for _, p := range readFile(t, c.file, o).Prices {
			names = append(names, string(p.Model))
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s of %q, %q: got %q, want %q", c.file, c.provider, c.models, got, c.want)
		}
	}
}

// entryOf returns a list of one model with an input price.
func entryOf(input string) []byte {
	return []byte(`{"a":{"models":{"m":{"cost":{"input":` + input + `,"output":1},"limit":{"context":1000,"output":1000}}}}}`)
}

func TestAmountsAreExactAndRoundedUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ input, factor, want string }{
		{"1.25", "1", "1.25"},
		{"1.25e-06", "1", "0.00000125"},
		{"0.1", "3", "0.30"}, // as floats, it is more
		{"1.1", "1.1", "1.21"},
		{"1e-9", "1", "0.000000001"},
		{"1.0000000001e-9", "1", "0.000000002"},
		{"1e-99", "1", "0.000000001"},
		{"0.333333333", "1.000000001", "0.333333334"},
		{"2", "0.000000001", "0.000000002"},
		{"1E+2", "1.2", "120.00"},
		{"1.79999999999999999999999999999e0", "1", "1.80"},
		{"0e5", "1", "refused: it has no price above 0 for input or for output"},
		{"-0.0", "1", "refused: it has no price above 0 for input or for output"},
		{"1e99", "1", "refused: cost.input is out of range"},
		{"1e999999999", "1", "refused: cost.input is not a number"},
		{"true", "1", "refused: cost.input is not a number"},
		{"[1]", "1", "refused: cost.input is not a number"},
		{"9223372036.854775808", "1", "refused: cost.input is out of range"},
	} {
		o := options("")
		o.Factor, _ = money.Parse(c.factor)
		list, err := pricelist.Read(entryOf(c.input), o)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(reasons(list), "")
		if len(list.Prices) > 0 {
			got = list.Prices[0].Input.String()
		}
		if want, refused := strings.CutPrefix(c.want, "refused: "); got != want && (!refused || !strings.Contains(got, want)) {
			t.Errorf("%s times %s: got %s, want %s", c.input, c.factor, got, c.want)
		}
	}
}

func TestUnknownFormsAreRefused(t *testing.T) {
	t.Parallel()
	known := entryOf("1")
	for text, want := range map[string]string{
		``:                                     "not a JSON object",
		`[]`:                                   "not a JSON object",
		`{} {}`:                                "not a JSON object",
		`{`:                                    "not a JSON object",
		`null`:                                 "format of the list is not known",
		`{}`:                                   "format of the list is not known",
		`{"data":[{"id":"a","pricing":{}}]}`:   "format of the list is not known",
		`{"a":{"models":[]}}`:                  "format of the list is not known",
		`{"a":{"input_cost_per_token":1}}`:     "format of the list is not known",
		`{"a":{"litellm_provider":"b"},"c":1}`: "format of the list is not known",
		`{"a":{"litellm_provider":"b"}}`:       "the format of litellm, not of models.dev",
		strings.Repeat("[", 20000) + string(known): "not a JSON object",
	} {
		o := options("")
		o.From = "models.dev"
		if _, err := pricelist.Read([]byte(text), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %s", text, err, want)
		}
	}
}

// TestNamesOfTiersAreHarmless reads modes whose names come from the list.
func TestNamesOfTiersAreHarmless(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		`ultra-fast`: "tier ultra-fast {", `x2`: "", `a b`: "", `a\n}\n}`: "", `{$HOME}`: "", `Fast`: "", `auto`: "refused", ``: "",
	} {
		text := strings.Replace(string(entryOf("1")), `"limit"`, `"experimental":{"modes":{"m":{"cost":{"input":2},"provider":{"body":{"service_tier":"`+name+`"}}}}},"limit"`, 1)
		list, err := pricelist.Read([]byte(text), options(""))
		if err != nil {
			t.Fatal(err)
		}
		switch got := blocks(list); {
		case want == "refused":
			if got != "" {
				t.Errorf("%s: got %s", name, got)
			}
		case want == "":
			if !strings.HasPrefix(got, "price m {") || strings.Contains(got, "tier") || !slices.Contains(list.Ignored, "experimental.modes.m") {
				t.Errorf("%s: got %s, %q", name, got, list.Ignored)
			}
		case !strings.Contains(got, want):
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	list := readFile(t, "litellm.json", options("acme"))
	changes := func(text string) (models string) {
		t.Helper()
		now, err := catalog.NewPrices(adapted(t, text))
		if err != nil {
			t.Fatal(err)
		}
		list := readFile(t, "litellm.json", options("acme"))
		list.KeepChanges(now)
		for line := range strings.Lines(list.Caddyfile()) {
			if strings.HasSuffix(line, ": new\n") || strings.Contains(line, ": changed;") {
				models += " " + strings.TrimSpace(line)
			}
		}
		if (models == "") != (len(list.Prices) == 0) {
			t.Errorf("kept %v with the text %s", list.Prices, models)
		}
		return models
	}
	all := list.Caddyfile()
	if got := changes(all); got != "" {
		t.Errorf("the same prices have the changes %s", got)
	}
	other := strings.NewReplacer("call web_search 0.014", "call web_search 0.014 max 3\n\ton_disconnect cancel\n\tcharge_failed_input on").Replace(all)
	first, second := strings.Index(other, "tier batch"), strings.Index(other, "tier fast")
	other = other[:first] + other[second:strings.Index(other, "tier priority")] + other[first:second] + other[strings.Index(other, "tier priority"):]
	if got := changes(other); got != "" {
		t.Errorf("what a list cannot say, and the order, have the changes %s", got)
	}
	if got := changes(strings.Replace(all, "cache_read 0.60", "cache_read 0.61", 1)); got != " # acme-1: changed; now it costs" {
		t.Errorf("got%s", got)
	}
	if got := changes(strings.Replace(all, "price acme-2 ", "price acme-* ", 1)); got != "" {
		t.Errorf("a pattern with the same price: got%s", got)
	}
	if got := changes(strings.Replace(all, "price acme-1 ", "price acme-* ", 1)); got != "" {
		t.Errorf("a pattern with the same price: got%s", got)
	}
	if got := changes(strings.Replace(all, "per second 0.00012", "per second 0.0001 max 600", 1)); got != " # acme-hear: changed; now it costs" {
		t.Errorf("got%s", got)
	}
	if got := changes("price other {\nrequest 1\n}"); got != " # acme-1: new # acme-2: new # acme-draw: new # acme-embed: new # acme-hear: new # acme-hear-tokens: new # acme-paint: new # acme-rank: new # acme-short: new # acme-speak: new" {
		t.Errorf("no price: got%s", got)
	}
}
