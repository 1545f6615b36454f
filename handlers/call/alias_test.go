package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// aliases are a short and a long name of a model with a price.
const aliases = prices + `
	alias a priced-m
	alias the-name-of-a-model-that-is-longer-than-the-model-and-the-space-before-a-body priced-n
	alias default priced-m
	price priced-r {
		input 0.001
		output 0.01
		context 10000
		max_output 1000
		call image_generation 0.0001
	}
`

func TestOnlyTheNameOfAnAliasChangesInTheBody(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: aliases, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	const long = "the-name-of-a-model-that-is-longer-than-the-model-and-the-space-before-a-body"
	space := strings.Repeat(" ", 100)
	filler := `"metadata":{"user_id":"` + strings.Repeat("x", 300<<10) + `"}`
	for name, c := range map[string]struct {
		path, body string // %s: a name
		alias      string
		model      string
	}{
		"first, longer":       {messages, `{"model":%s,"max_tokens":9,"messages":[{"role":"user","content":"é\u00e9"}]}`, `"a"`, "priced-m"},
		"first, shorter":      {messages, `{"model":%s,"max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`, `"` + long + `"`, "priced-n"},
		"escaped":             {messages, ` {"max_tokens":9,"model" : %s, "messages":[{"role":"user","content":"hello"}]} `, `"\u0061"`, "priced-m"},
		"last, of a long one": {messages, `{"max_tokens":9,"messages":[{"role":"user","content":"hello"}],` + filler + `,"model":%s}`, `"a"`, "priced-m"},
		"after much space":    {messages, space + `{"model":%s,"max_tokens":9,"messages":[{"role":"user","content":"model"}]}`, `"a"`, "priced-m"},
		"of a fallback":       {messages, `{"model":"priced-m","max_tokens":9,"messages":[{"role":"user","content":"hello"}],"fallbacks":[{"model":"priced-2"},{"model":%s}]}`, `"a"`, "priced-m"},
		"of a tool":           {messages, `{"model":"priced-t","max_tokens":9,"tools":[{"type":"advisor_20260301","name":"advisor","model":%s,"max_uses":1}],"messages":[{"role":"user","content":"hello"}]}`, `"a"`, "priced-m"},
		"in a list":           {chat, `{"model":"priced-l","models":[ "priced-2" , %s ],"messages":[{"role":"user","content":"hello"}]}`, `"a"`, "priced-m"},
		"of a moderation":     {chat, `{"model":"priced-o","moderation":{"model":%s},"messages":[{"role":"user","content":"hello"}]}`, `"a"`, "priced-m"},
		"of a free count":     {countTokens, `{"model":%s,"messages":[{"role":"user","content":"hello"}]}`, `"a"`, "priced-m"},
		"of embeddings":       {"/v1/embeddings", `{"input":"hello","model":%s}`, `"a"`, "priced-m"},
		"of responses":        {"/v1/responses", `{"input":"hello","tools":[{"type":"image_generation","model":%s}],"model":"priced-r"}`, `"a"`, "priced-m"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := fmt.Sprintf(c.body, c.alias)
			want := fmt.Sprintf(c.body, `"`+c.model+`"`)
			before := g.Backend.Total()
			got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, key.Secret), asked)
			if got.Status != http.StatusOK || g.Backend.Total() != before+1 {
				t.Fatalf("answered %d %s", got.Status, got.Body)
			}
			found := false
			for _, model := range []string{"priced-m", "priced-n", "priced-t", "priced-l", "priced-o", "priced-r"} {
				for _, seen := range g.Backend.Seen(model) {
					found = found || string(seen.Body) == want && (seen.Header.Get("Content-Length") == fmt.Sprint(len(want)))
				}
			}
			if !found {
				t.Errorf("the backend did not receive %.300s", want)
			}
		})
	}
}

func TestAnAliasHasThePriceAndTheScopeOfItsModel(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: aliases, Site: `
		modelgate_messages {
			@m modelgate_model priced-m
			reverse_proxy @m BACKEND
			@never modelgate_model priced-*
			respond @never 418
		}
		modelgate_completions {
			@a modelgate_model a
			reverse_proxy @a BACKEND {
				header_up X-Asked {http.modelgate.model}
			}
		}`})
	g.Backend.On("priced-m", gatetest.JSON(200, messageAnswer))
	key := g.NewKey(t, map[string]any{"models": []string{"priced-m"}})
	g.Credit(t, key.UserID, "1.00")
	got := post(t, g, messages, key.Secret, "a", "")
	if got.Status != 200 || got.Body != messageAnswer {
		t.Fatalf("answered %d %s", got.Status, got.Body)
	}
	line := g.CallLine(t, got.RequestID())
	if line.Text("model") != "priced-m" || line.Text("asked_model") != "a" || line.Text("cost") != "0.000000049" {
		t.Errorf("logged %v", line)
	}
	if line := g.CallLine(t, post(t, g, messages, key.Secret, "priced-m", "").RequestID()); line.Text("asked_model") != "" {
		t.Errorf("without an alias: logged %v", line)
	}
	var listed struct{ Data []struct{ ID string } }
	decode(t, g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+key.Secret, ""), &listed)
	if got := fmt.Sprint(listed.Data); got != "[{a} {default} {priced-m}]" {
		t.Errorf("listed %s", got)
	}

	// The name alone does not open the model, and the model opens the name.
	other := g.NewKey(t, map[string]any{"models": []string{"a", "priced-n"}})
	g.Credit(t, other.UserID, "1.00")
	if got := post(t, g, messages, other.Secret, "a", ""); got.Status != 403 {
		t.Errorf("a key for the alias: answered %d %s", got.Status, got.Body)
	}
	if got := post(t, g, messages, other.Secret, "priced-n", `,"fallbacks":[{"model":"a"}]`); got.Status != 403 {
		t.Errorf("an alias as a fallback: answered %d %s", got.Status, got.Body)
	}
	decode(t, g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+other.Secret, ""), &listed)
	if got := fmt.Sprint(listed.Data); !strings.HasPrefix(got, "[{the-name") || strings.Contains(got, "{a}") {
		t.Errorf("listed %s", got)
	}

	if got := post(t, g, chat, key.Secret, "a", ""); got.Status != 200 {
		t.Errorf("a route of the alias: answered %d %s", got.Status, got.Body)
	}
	seen := g.Backend.Seen("priced-m")
	if asked := seen[len(seen)-1].Header.Get("X-Asked"); asked != "a" {
		t.Errorf("the placeholder is %q", asked)
	}
	if got := post(t, g, messages, key.Secret, "priced-m", `,"fallbacks":"default"`); got.Status != 403 || !strings.Contains(got.Body, "default") {
		t.Errorf("fallbacks default is no alias: answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, key.UserID)
	g.Verify(t)
}
