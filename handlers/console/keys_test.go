package console_test

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// seenKey is an API key as the console shows it.
type seenKey struct {
	ID, Name, Hint, State string
	Models                []string
	Ranges                []string `json:"ip_ranges"`
	Expires, Revoked      int64
	Limits                struct {
		Budget, Reset     string
		RequestsPerSecond int64 `json:"requests_per_second"`
		Streams           int64
		TokensPerMinute   int64 `json:"tokens_per_minute"`
	}
	Usage *struct {
		Used     string
		ResetsAt int64 `json:"resets_at"`
	}
	CallbackURL string `json:"callback_url"`
	Example     string `json:"example_model"`
}

// keys returns the first page of the keys of the user, the latest first.
func (b *browser) keys(t testing.TB) (list page[seenKey]) {
	t.Helper()
	into(t, b.does(t, "GET", "/api/token/", ""), &list)
	return list
}

func TestAKeyHasItsStateAndTheUsageOfItsBudget(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	g.Credit(t, b.registers(t), "5.00")
	other := b.makes(t, `"name":"other","models":["none-*"]`)
	g.Wait(time.Second) // the list is in the order of the seconds
	var made seenKey
	into(t, b.does(t, "POST", "/api/token/", `{"password":"`+password+`","name":"spender","limits":{"budget":"1.00","reset":"month"}}`), &made)
	if made.State != "active" || made.Usage == nil || made.Usage.Used != "0.00" || made.Usage.ResetsAt != calendar.Month.Next(g.Now()).Unix() || made.Example != "priced" {
		t.Errorf("the new key is %+v", made)
	}
	var rotated struct {
		gatetest.Key
		Example string `json:"example_model"`
	}
	into(t, b.does(t, "POST", "/api/token/"+other.ID+"/rotate", ""), &rotated)
	if rotated.Example != "" {
		t.Errorf("a key that may call no model of the gateway has the example %q", rotated.Example)
	}
	into(t, b.does(t, "POST", "/api/token/"+made.ID+"/rotate", ""), &rotated)
	if status := tries(t, g, rotated.Secret, rotated.Example); status != 200 {
		t.Errorf("the call gets %d", status)
	}
	spent := gatetest.Eventually(t, "the call is charged", func() (seenKey, bool) {
		key := b.keys(t).Items[0]
		return key, key.Usage != nil && key.Usage.Used == "0.25"
	})
	if spent.ID != made.ID {
		t.Errorf("the first key is %+v", spent)
	}
	b.does(t, "DELETE", "/api/token/"+other.ID, "")
	if keys := b.keys(t).Items; keys[1].State != "revoked" || keys[1].Usage != nil {
		t.Errorf("the revoked key is %+v", keys[1])
	}
	b.does(t, "PUT", "/api/token/"+made.ID, `{"password":"`+password+`","limits":{"budget":"0"}}`)
	if key := b.keys(t).Items[0]; key.Usage != nil {
		t.Errorf("a key without a budget has the usage %+v", key.Usage)
	}
}
