package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const lists = "../../internal/pricelist/testdata/"

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCallsAreChargedAtImportedPrices imports a list, validates a Caddyfile with it and makes calls.
func TestCallsAreChargedAtImportedPrices(t *testing.T) {
	code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "price", "import", lists+"litellm.json", "--provider", "acme", "--factor", "2")
	if code != 0 || !strings.HasPrefix(stdout, "# Prices of models in USD, times 2.00.") || !strings.Contains(stderr, `skipped "acme-old": it is deprecated`) || strings.Count(stderr, `ignored member "input_cost_per_image"`) != 1 {
		t.Fatalf("exit code %d:\n%s\n%s", code, stdout, stderr)
	}
	dir := t.TempDir()
	prices := filepath.Join(dir, "prices.caddyfile")
	write(t, prices, stdout)
	config := filepath.Join(dir, "Caddyfile")
	write(t, config, "{\n\tadmin off\n\tmodelgate {\n\t\tstorage badger "+filepath.Join(dir, "store")+"\n\t\timport prices.caddyfile\n\t}\n}\n:0 {\n\tmodelgate_completions {\n\t\treverse_proxy 127.0.0.1:1\n\t}\n}\n")
	if code, _, stderr := gatetest.Caddy(t, "", "validate", "--config", config); code != 0 {
		t.Fatalf("validate: exit code %d: %s", code, stderr)
	}

	g := gatetest.Start(t, gatetest.Config{App: "import " + prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "100")
	answer := func(model, tier string) http.HandlerFunc {
		return gatetest.JSON(http.StatusOK, `{"id":"x","object":"chat.completion","model":"`+model+`","service_tier":"`+tier+`","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":1000,"total_tokens":1010}}`)
	}
	for _, c := range []struct{ model, tier, cost string }{
		{"acme-1", "default", "0.03206"},  // 10 × 6 and 1,000 × 30 per million, and 0.002
		{"acme-1", "priority", "0.06212"}, // 10 × 12 and 1,000 × 60 per million, and 0.002
		{"acme-2", "default", "0.0020025"},
	} {
		g.Backend.On(c.model, answer(c.model, c.tier))
		got := g.Do(t, http.MethodPost, "/v1/chat/completions", "Authorization: Bearer "+key.Secret+"\n", `{"model":"`+c.model+`","max_tokens":1000,"messages":[{"role":"user","content":"hello, how do you do?"}]}`)
		if got.Status != http.StatusOK {
			t.Fatalf("%s: got %d %s", c.model, got.Status, got.Body)
		}
		if line := g.CallLine(t, got.RequestID()); line.Text("cost") != c.cost {
			t.Errorf("%s costs %s, not %s", c.model, line.Text("cost"), c.cost)
		}
	}
	got := g.Do(t, http.MethodPost, "/v1/chat/completions", "Authorization: Bearer "+key.Secret+"\n", `{"model":"acme-old","messages":[{"role":"user","content":"hello"}]}`)
	if got.Status != http.StatusNotFound {
		t.Errorf("a model that was skipped: got %d %s", got.Status, got.Body)
	}
}

func TestPriceImportShowsDifferences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	prices, config := filepath.Join(dir, "prices.caddyfile"), filepath.Join(dir, "gateway.conf")
	write(t, config, "{\n\tmodelgate {\n\t\timport prices.*\n\t\tprice local-* {\n\t\t\tinput 0\n\t\t\toutput 0\n\t\t}\n\t}\n}\n")
	run := func(args ...string) (code int, stdout, stderr string) {
		t.Helper()
		return gatetest.Caddy(t, "", append([]string{"modelgate", "price", "import", lists + "modelsdev.json", "--provider", "acme"}, args...)...)
	}
	_, all, _ := run()
	write(t, prices, all)
	if code, stdout, stderr := run("--diff", config); code != 0 || stdout != "" {
		t.Errorf("the same prices: exit code %d:\n%s\n%s", code, stdout, stderr)
	}
	cut := strings.Replace(all, "input 0.15", "input 0.14", 1)
	write(t, prices, cut)
	code, stdout, stderr := run("--diff", config)
	for _, want := range []string{"# acme-small: changed; now it costs\n# price acme-small {\n# \tinput 0.14\n", "\nprice acme-small {\n\tinput 0.15\n", "# SHA-256: "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("there is no %q in\n%s", want, stdout)
		}
	}
	if code != 1 || strings.Contains(stdout, "acme-large") || !strings.Contains(stderr, "Error: 1 prices differ from those of "+config) {
		t.Errorf("another price: exit code %d:\n%s\n%s", code, stdout, stderr)
	}
	if code, stdout, _ := run("--diff", config, "--model", "acme-large"); code != 0 || stdout != "" {
		t.Errorf("a model with the same price: exit code %d:\n%s", code, stdout)
	}
	write(t, prices, cut[:strings.Index(cut, "price acme-small")])
	code, stdout, _ = run("--diff", config, "--json")
	var list struct {
		Source, SHA256 string
		Prices         []struct{ Model, Input string }
		Skipped        []struct{ Model, Reason string }
	}
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != 1 || len(list.Prices) != 1 || list.Prices[0].Model != "acme-small" || list.Prices[0].Input != "0.15" || len(list.Skipped) != 9 || len(list.SHA256) != 64 {
		t.Errorf("a new price: exit code %d, %v: %s", code, err, stdout)
	}
}

func TestPriceImportRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "Caddyfile")
	write(t, broken, "{\n\tmodelgate {\n\t\tprice a {\n")
	list := lists + "modelsdev.json"
	for name, c := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"a file that is missing":      {[]string{list + "x"}, 3, "no such file"},
		"a directory":                 {[]string{dir}, 3, "directory"},
		"another format":              {[]string{list, "--from", "litellm"}, 4, "the list has the format of models.dev, not of litellm"},
		"no list":                     {[]string{broken}, 4, "not a JSON object"},
		"an unknown format":           {[]string{list, "--from", "openrouter"}, 4, "the list has the format of models.dev, not of openrouter"},
		"a bad pattern":               {[]string{list, "--model", "a["}, 2, "is not a pattern such as claude-*"},
		"a factor of zero":            {[]string{list, "--factor", "0"}, 2, "not a decimal number above zero"},
		"a factor in words":           {[]string{list, "--factor", "1e1"}, 2, "not a decimal number above zero"},
		"no model":                    {[]string{list, "--provider", "nobody"}, 4, "the list has no price that can be imported"},
		"a Caddyfile that is missing": {[]string{list, "--diff", broken + "x"}, 3, "no such file"},
		"a broken Caddyfile":          {[]string{list, "--diff", broken}, 4, "Caddyfile"},
		"no file":                     {nil, 2, "wrong number of arguments: 0; allowed: 1"},
	} {
		code, stdout, stderr := gatetest.Caddy(t, "", append([]string{"modelgate", "price", "import"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: exit code %d, not %d: %s%s", name, code, c.code, stdout, stderr)
		}
	}
}
