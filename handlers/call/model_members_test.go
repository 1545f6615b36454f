package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestEveryModelOfABodyIsCheckedAndPriced(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices, Site: gatetest.Proxied})
	key := g.NewKey(t, map[string]any{"models": []string{"media*", "none", "default"}})
	g.Credit(t, key.UserID, "1.00")
	for i, c := range []struct {
		path, more string
		status     int
		param      string
	}{
		{messages, `,"fallbacks":[{"model":"media-2"},{"model":"other"}]`, 403, "fallbacks[1].model"},
		{messages, `,"fallbacks":[{"model":"media-2"},{"model":"none"}]`, 400, "fallbacks[1].model"},
		{messages, `,"fallbacks":[{"model":" media-2"}]`, 400, "fallbacks[0].model"},
		{messages, `,"fallbacks":[{"m\u006fdel":"other"}]`, 403, "fallbacks[0].model"},
		{messages, `,"fallbacks":"default"`, 400, "fallbacks"},
		{messages, `,"fallbacks":[{"model":"media-2"}]`, 200, ""},
		{messages, `,"tools":[{"name":"a"},{"type":"advisor_20260301","model":"other","max_uses":2}]`, 403, "tools[1].model"},
		{countTokens, `,"tools":[{"type":"advisor_20260301","model":"other"}]`, 403, "tools[0].model"},
		{chat, `,"fallbacks":["media-2","other"]`, 403, "fallbacks[1]"},
		{chat, `,"models":["other"]`, 403, "models[0]"},
		{chat, `,"moderation":{"model":"other"}`, 403, "moderation.model"},
		{chat, `,"lora_path":"other"`, 403, "lora_path"},
		{chat, `,"extra_body":{"model":"other"}`, 400, "extra_body.model"},
		{completions, `,"extra_body":{"fallbacks":[{"model":"other"}]}`, 403, "extra_body.fallbacks[0].model"},
		{chat, `,"models":["media-2"]`, 200, ""},
		{chat, `,"fallbacks":[{"media-1":["other"]}]`, 400, "fallbacks[0].model"},
		{chat, `,"fallbacks":[{"model":"media-2","fallbacks":[{"model":"other"}]}]`, 400, "fallbacks[0].fallbacks"},
		{chat, `,"context_window_fallbacks":[{"media-1":["other"]}]`, 400, "context_window_fallbacks"},
		{completions, `,"extra_body":{"api_base":"http://x"}`, 400, "extra_body.api_base"},
	} {
		model := fmt.Sprintf("media %d", i)
		g.Backend.On(model, gatetest.JSON(200, messageAnswer))
		got := post(t, g, c.path, key.Secret, model, c.more)
		if got.Status != c.status || c.path != messages && c.path != countTokens && c.param != "" && !strings.Contains(got.Body, fmt.Sprintf(`"param":%q`, c.param)) {
			t.Errorf("%s %s: answered %d %s, want %d at %s", c.path, c.more, got.Status, got.Body, c.status, c.param)
		}
		if seen := len(g.Backend.Seen(model)); seen != map[int]int{200: 1}[c.status] {
			t.Errorf("%s %s: the backend received %d calls", c.path, c.more, seen)
		}
	}
}

func TestAFreeModelMayNotNameAPricedModel(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices + "unpriced allow", Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Backend.On("free", gatetest.JSON(200, messageAnswer))
	if got := post(t, g, messages, key.Secret, "free", `,"fallbacks":[{"model":"media-2"}]`); got.Status != 400 {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
	if got := post(t, g, messages, key.Secret, "free", `,"fallbacks":[{"model":"free-2"}]`); got.Status != 200 {
		t.Errorf("a free fallback: answered %d %s", got.Status, got.Body)
	}
}

func TestVendorStateIsRefusedUnlessShared(t *testing.T) {
	list := `{"type":"file","file":{"file_id":"file-1"}}`
	for word, status := range map[string]int{"": 400, "state off": 400, "state shared": 200} {
		t.Run(word, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: word, Site: gatetest.Proxied})
			key := g.NewKey(t, nil)
			g.Backend.On("kept", gatetest.JSON(200, chatAnswer))
			got := g.Do(t, http.MethodPost, chat, headersFor(chat, key.Secret), parts("kept", list))
			if got.Status != status || status == 400 && !strings.Contains(got.Body, `"param":"messages[0].content[0].file.file_id"`) {
				t.Errorf("%q: answered %d %s", word, got.Status, got.Body)
			}
			if got := post(t, g, chat, key.Secret, "kept", `,"store":true`); got.Status != 200 {
				t.Errorf("%q: only store: answered %d %s", word, got.Status, got.Body)
			}
		})
	}
}

func TestModelNamesArePrintableAndTrimmed(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for _, name := range []string{"media-1 ", " media-1", "media-1\u00a0", "media-1\u200b", "media\u2028-1", "media-1\u3000", "media\u202e-1", "media\u00ad-1", "media-1\ufeff", "media\u0085"} {
		if got := post(t, g, messages, key.Secret, name, ""); got.Status != 400 {
			t.Errorf("%+q: answered %d %s", name, got.Status, got.Body)
		}
	}
	if n := g.Backend.Total(); n != 0 {
		t.Errorf("the backend received %d calls", n)
	}
	for _, name := range []string{"media 1", "media-ü", "media/模型-7b"} {
		if got := post(t, g, messages, key.Secret, name, ""); got.Status != 200 {
			t.Errorf("%+q: answered %d %s", name, got.Status, got.Body)
		}
	}
}

func TestPatternsDoNotMatchAmbiguousModelNames(t *testing.T) {
	for _, unpriced := range []string{"refuse", "allow"} {
		t.Run(unpriced, func(t *testing.T) {
			g := gatetest.Start(t, gatetest.Config{App: mediaPrices + "unpriced " + unpriced, Site: gatetest.Proxied})
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			scoped := g.NewKey(t, map[string]any{"models": []string{"free-*"}})
			g.Credit(t, scoped.UserID, "1.00")
			for _, rest := range []string{"a:online", "a,costly-1", "a/../costly-1", "a/%2E%2e/costly-1", `a\..\costly-1`} {
				if got := post(t, g, chat, key.Secret, "media-"+rest, ""); got.Status != http.StatusNotFound {
					t.Errorf("%q: answered %d %s", rest, got.Status, got.Body)
				}
				if got := post(t, g, chat, key.Secret, "media-a", fmt.Sprintf(`,"models":[%q]`, "media-"+rest)); got.Status != http.StatusBadRequest {
					t.Errorf("%q in models: answered %d %s", rest, got.Status, got.Body)
				}
				if got := post(t, g, chat, scoped.Secret, "free-"+rest, ""); got.Status != http.StatusForbidden {
					t.Errorf("%q outside the scope: answered %d %s", rest, got.Status, got.Body)
				}
			}
			if n := g.Backend.Total(); n != 0 {
				t.Errorf("the backend received %d calls", n)
			}
		})
	}
}

func TestMembersThatMultiplyAnswersAreRefusedForPricedModels(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: mediaPrices + "unpriced allow", Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for name, c := range map[string]struct {
		path, more, param string // empty param: the call is accepted
	}{
		"n of messages":       {messages, `,"n":2`, "n"},
		"given twice":         {messages, `,"n":1,"n":4`, "n"},
		"best_of of messages": {messages, `,"best_of":2`, "best_of"},
		"best_of of chat":     {chat, `,"best_of":500`, "best_of"},
		"n of chat":           {chat, `,"n":2`, ""},
		"best_of":             {completions, `,"best_of":2`, ""},
		"one":                 {messages, `,"n":1,"best_of":1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := messageAnswer
			if c.path != messages {
				answer = chatAnswer
			}
			model := modelName("media answers " + name)
			g.Backend.On(model, gatetest.JSON(200, answer))
			got := post(t, g, c.path, key.Secret, model, c.more)
			if c.param == "" && got.Status != http.StatusOK || c.param != "" &&
				(got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "`"+c.param+"` multiplies the answers") || len(g.Backend.Seen(model)) != 0) {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
			free := "free answers " + name
			g.Backend.On(free, gatetest.JSON(200, answer))
			if got := post(t, g, c.path, key.Secret, free, c.more); got.Status != http.StatusOK {
				t.Errorf("a model without a price: answered %d %s", got.Status, got.Body)
			}
		})
	}
}
