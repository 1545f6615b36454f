package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const answered = `{"choices":[{"text":"four","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`

// tries returns the status of a call with a key for a model.
func tries(t *testing.T, g *gatetest.Gate, secret, model string) int {
	t.Helper()
	g.Backend.On(model, gatetest.JSON(200, answered))
	return g.Do(t, http.MethodPost, "/v1/completions", "X-Api-Key: "+secret, fmt.Sprintf(`{"model":%q,"prompt":"hello"}`, model)).Status
}

// makes makes a key in the console.
func (b *browser) makes(t *testing.T, spec string) (key gatetest.Key) {
	t.Helper()
	into(t, b.does(t, "POST", "/api/token/", fmt.Sprintf(`{"password":%q,%s}`, password, spec)), &key)
	return key
}

// given makes a key for a user as an operator.
func given(t *testing.T, g *gatetest.Gate, user string, scope map[string]any) (key gatetest.Key) {
	t.Helper()
	scope["user"] = user
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys", scope, &key)
	return key
}

func TestAnOwnerDoesNotLiftTheRatesOfTheConfiguration(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app + "unpriced allow\nlimits {\n requests_per_second 1\n}\n", Site: site})
	b := newBrowser(g)
	b.registers(t)
	key := b.makes(t, `"limits":{"requests_per_second":1000000}`)
	b.does(t, "PUT", "/api/token/"+key.ID, `{"password":"`+password+`","limits":{"requests_per_second":999999}}`)
	statuses := make(map[int]int)
	for range 20 { // within a second or two
		statuses[tries(t, g, key.Secret, "free")]++
	}
	if statuses[429] == 0 {
		t.Errorf("20 calls were answered %v", statuses)
	}
	g.Wait(time.Minute)
	var shown struct{ Rates map[string]int64 }
	got := g.Do(t, http.MethodGet, "/v1/usage", "X-Api-Key: "+key.Secret, "")
	if err := json.Unmarshal([]byte(got.Body), &shown); err != nil || shown.Rates["requests_per_second"] != 1 {
		t.Errorf("the key is told %s", got.Body)
	}
}

func TestAnOwnerDoesNotLiftWhatTheOperatorHasSetForAKey(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app + "unpriced allow\n", Site: site})
	b := newBrowser(g)
	name := b.registers(t)
	g.Credit(t, name, "100.00")
	soon := g.Now().Add(time.Hour).Unix()
	for what, c := range map[string]struct {
		scope  map[string]any // by the operator
		change string         // by the owner
		model  string
		after  time.Duration
		want   int
	}{
		"a budget":     {map[string]any{"limits": map[string]any{"budget": "0.10"}}, `{"limits":{"budget":"0"}}`, "priced", 0, 402},
		"a new budget": {map[string]any{"limits": map[string]any{"budget": "0.10"}}, `{"limits":{"budget":"50.00","reset":"day"}}`, "priced", 0, 402},
		"models":       {map[string]any{"models": []string{"a-*"}}, `{"models":[]}`, "b-1", 0, 403},
		"other models": {map[string]any{"models": []string{"a-*"}}, `{"models":["b-1"]}`, "b-1", 0, 403},
		"addresses":    {map[string]any{"ip_ranges": []string{"192.0.2.0/24"}}, `{"ip_ranges":[]}`, "free", 0, 403},
		"an expiry":    {map[string]any{"expires": soon}, `{"expires":0}`, "free", 2 * time.Hour, 401},
	} {
		key := given(t, g, name, c.scope)
		b.does(t, "PUT", "/api/token/"+key.ID, strings.Replace(c.change, "{", `{"password":"`+password+`",`, 1))
		g.Wait(c.after)
		if got := tries(t, g, key.Secret, c.model); got != c.want {
			t.Errorf("%s: after the owner's change a call is answered %d, want %d", what, got, c.want)
		}
	}
	// An operator removes the operator's limits; the owner's limits stay.
	key := given(t, g, name, map[string]any{"limits": map[string]any{"budget": "0.10"}})
	b.does(t, "PUT", "/api/token/"+key.ID, `{"password":"`+password+`","limits":{"budget":"0.30"}}`)
	g.MustAdmin(t, http.MethodDelete, "/modelgate/keys/"+key.ID+"/limits", nil, nil)
	if first, second := tries(t, g, key.Secret, "priced"), tries(t, g, key.Secret, "priced"); first != 200 || second != 402 {
		t.Errorf("with the owner's budget of 0.30, two calls of 0.25 are answered %d and %d", first, second)
	}
	g.WalletAtRest(t, name)
	g.Verify(t)
}

func TestOwnersAndOperatorsAreEachShownWhatTheyHaveSet(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app, Site: site})
	b := newBrowser(g)
	name := b.registers(t)
	soon := g.Now().Add(time.Hour).Unix()
	key := given(t, g, name, map[string]any{
		"models": []string{"op-*"}, "ip_ranges": []string{"192.0.2.0/24"}, "expires": soon,
		"limits": map[string]any{"requests_per_second": 77, "budget": "7.77"},
	})
	changed := b.does(t, "PUT", "/api/token/"+key.ID, `{"password":"`+password+`","models":["own-*"],"ip_ranges":["198.51.100.0/24"],"limits":{"streams":3}}`)
	rotated := b.does(t, "POST", "/api/token/"+key.ID+"/rotate", "")
	for where, answer := range map[string]json.RawMessage{
		"changed": changed, "rotated": rotated,
		"shown":  b.does(t, "GET", "/api/token/"+key.ID, ""),
		"listed": b.does(t, "GET", "/api/token/", ""),
	} {
		text := string(answer)
		for _, word := range []string{`"op-*"`, `"192.0.2.0/24"`, `"requests_per_second"`, `"budget"`, `"operator"`} {
			if strings.Contains(text, word) {
				t.Errorf("%s: the owner is shown %q: %s", where, word, text)
			}
		}
		// The owner sees when the key expires, even if the operator has set it.
		for _, word := range []string{`"own-*"`, `"198.51.100.0/24"`, `"streams":3`, fmt.Sprintf(`"expires":%d`, soon)} {
			if !strings.Contains(text, word) {
				t.Errorf("%s: the owner is not shown %s: %s", where, word, text)
			}
		}
	}
	type scope struct {
		Models []string
		Ranges []string `json:"ip_ranges"`
		Limits map[string]any
	}
	var list struct {
		Items []struct {
			ID string
			scope
			Owner scope
		}
	}
	g.MustAdmin(t, http.MethodGet, "/modelgate/keys?user="+name, nil, &list)
	if len(list.Items) != 1 || fmt.Sprint(list.Items[0].scope) != "{[op-*] [192.0.2.0/24] map[budget:7.77 requests_per_second:77 reset:never]}" ||
		fmt.Sprint(list.Items[0].Owner) != "{[own-*] [198.51.100.0/24] map[streams:3]}" {
		t.Errorf("operators are shown %+v", list.Items)
	}
}
