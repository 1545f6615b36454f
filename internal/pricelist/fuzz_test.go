package pricelist_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/pricelist"
)

// FuzzRead converts lists of any names and numbers. What is written must be the prices of the list in
// Caddy's adapter, and nothing else.
func FuzzRead(f *testing.F) {
	f.Add("acme-1", "priority", "1.25e-06", "input_cost_per_token_above_200k_tokens_flex")
	f.Add("a {\n}\n}\nimport /etc/passwd\n", "x2", "1", "cache_read_input_token_cost_batches")
	f.Add("{$HOME}", "a b", "0.1", "tiers")
	f.Add("a*", "\"", "-1", "context_over_200k")
	f.Add("<<END", "`", "1e99", "search_context_cost_per_query")
	f.Add("\\", "#", "{\"us\":1.1,\"fast\":2}", "provider_specific_entry")
	f.Add("(snippet)", "{env.X}", "[{\"input\":2,\"tier\":{\"size\":7}}]", "tiers")
	plain := regexp.MustCompile(`^[a-zA-Z0-9 \t\n@._:/+~=#{},()-]*$`)
	f.Fuzz(func(t *testing.T, name, tier, value, member string) {
		if !json.Valid([]byte(value)) {
			value = "2"
		}
		raw := json.RawMessage(value)
		cost := map[string]any{"input": 1, "output": 2, member: raw}
		mode := map[string]any{"cost": cost, "provider": map[string]any{"body": map[string]any{"speed": tier}}}
		for _, list := range []any{
			map[string]any{"p": map[string]any{"models": map[string]any{name: map[string]any{
				"cost": cost, "limit": map[string]any{"context": 1000000, "output": 1000}, "experimental": map[string]any{"modes": map[string]any{tier: mode}},
			}}}},
			map[string]any{name: map[string]any{
				"litellm_provider": "p", "mode": "chat", "max_input_tokens": 1000000, "max_output_tokens": 1000,
				"input_cost_per_token": 1e-6, "output_cost_per_token": raw, member: raw, "input_cost_per_token_" + tier: raw,
			}},
		} {
			text, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			checkWritten(t, text, plain)
		}
	})
}

func checkWritten(t *testing.T, text []byte, plain *regexp.Regexp) {
	t.Helper()
	list, err := pricelist.Read(text, options(""))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(list.Prices) == 0 {
		return
	}
	written := list.Caddyfile()
	if got := blocks(&pricelist.List{Prices: adapted(t, written)}); got != blocks(list) {
		t.Fatalf("the adapter reads\n%s\nfrom\n%s", got, written)
	}
	if !plain.MatchString(written) {
		t.Fatalf("unexpected characters in %q", written)
	}
	now, err := catalog.NewPrices(list.Prices)
	if err != nil {
		t.Fatal(err)
	}
	if list.KeepChanges(now); len(list.Prices) > 0 {
		t.Fatalf("the prices differ from themselves: %s", list.Caddyfile())
	}
}
