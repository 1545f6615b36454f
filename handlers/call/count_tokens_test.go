package call_test

import (
	"net/http"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestCountTokensIsNotAFreeModelCall sends members to count_tokens that only a call may have.
func TestCountTokensIsNotAFreeModelCall(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices + "limits {\n count_tokens_per_minute 100\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	for name, more := range map[string]string{
		"nothing": "", "a bound": `,"max_tokens":1000`, "a tool": `,"tools":[{"name":"a","input_schema":{}}]`,
		"a tool of the vendor": `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`,
		"thinking":             `,"thinking":{"type":"enabled","budget_tokens":2000}`, "a stream": streamed,
		"a bound and a stream": `,"max_tokens":1000` + streamed,
	} {
		t.Run(name, func(t *testing.T) {
			model := modelName("priced " + name)
			g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != countTokens {
					t.Errorf("the backend received a request for %s", r.URL)
				}
				gatetest.JSON(200, `{"input_tokens":5}`)(w, r)
			})
			got := post(t, g, countTokens, key.Secret, model, more)
			if got.Status != http.StatusOK {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
			if w := g.Wallet(t, key.UserID); w.Balance != 0 || w.Reserved != 0 || w.Owed != 0 {
				t.Errorf("the wallet is %+v", w)
			}
			// The backend answers count_tokens with a model call.
			for kind, script := range map[string]http.HandlerFunc{"a stream": gatetest.Stream(messageEvents...), "an answer": gatetest.JSON(200, messageAnswer)} {
				g.Backend.On(model, script)
				got := post(t, g, countTokens, key.Secret, model, more)
				if want := map[bool]int{true: 503, false: 200}[kind == "a stream"]; got.Status != want {
					t.Errorf("%s: answered %d %.60q", kind, got.Status, got.Body)
				}
			}
		})
	}
}
