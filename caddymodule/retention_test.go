package caddymodule_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/storage"
)

const day = 24 * time.Hour

// keeps is a gate that keeps records as the words of its retention say.
func keeps(words string) gatetest.Config {
	return gatetest.Config{Site: gatetest.Proxied, App: "retention {\n" + words + "\n}"}
}

// keeping lets a minute pass for the retention of the runtime.
func keeping(t *testing.T) {
	t.Helper()
	if err := caddymodule.Keep(gatetest.Runtime(t), t.Context()); err != nil {
		t.Fatal(err)
	}
}

// callsSince returns for how long back calls are listed.
func callsSince(t *testing.T, g *gatetest.Gate) time.Duration {
	t.Helper()
	before := g.Now()
	from, err := gatetest.Runtime(t).Ledger.CallsFrom(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return before.Sub(from).Round(time.Hour)
}

// auditFor returns how long an event is kept that is recorded now.
func auditFor(t *testing.T) (kept time.Duration) {
	t.Helper()
	runtime := gatetest.Runtime(t)
	err := runtime.Store.Update(t.Context(), func(txn storage.Txn) error {
		now := runtime.Store.Now()
		return audit.Record(t.Context(), noting{txn, func(purge time.Time) { kept = purge.Sub(now) }}, now, &audit.Event{Actor: "operator", Action: "test"})
	})
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

// noting is a transaction that tells when the engine may drop what is written.
type noting struct {
	storage.Txn
	note func(purge time.Time)
}

func (n noting) Set(key, val []byte, purge time.Time) error {
	n.note(purge)
	return n.Txn.Set(key, val, purge)
}

func TestRecordsAreKeptAsTheConfigurationInForceSays(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	g.Backend.On("m", gatetest.JSON(200, `{"choices":[{"text":"four","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`))
	key := g.NewKey(t, nil)
	call := func() {
		t.Helper()
		if got := g.Do(t, "POST", "/v1/completions", "X-Api-Key: "+key.Secret, `{"model":"m","prompt":"hello"}`); got.Status != 200 {
			t.Fatalf("a call is answered %d %s", got.Status, got.Body)
		}
		g.WalletAtRest(t, key.UserID)
	}
	for _, step := range []struct {
		words        string // empty: no reload
		wait         time.Duration
		since, audit time.Duration
	}{
		{"", 0, 90 * day, 400 * day},
		{"calls 10d\naudit 30d", 0, 10 * day, 30 * day},
		{"", 11 * day, 10 * day, 30 * day},
		{"calls 40d", 0, 10 * day, 400 * day}, // those of before still go after 10d
		{"", 20 * day, 20 * day, 400 * day},   // they are gone, all since then are there
		{"", 30 * day, 40 * day, 400 * day},
		{"tasks 3d", 0, 40 * day, 400 * day},
	} {
		if step.words != "" {
			if err := g.Reload(keeps(step.words)); err != nil {
				t.Fatal(err)
			}
		}
		keeping(t)
		g.Wait(step.wait)
		call()
		if since, audit := callsSince(t, g), auditFor(t); since != step.since || audit != step.audit {
			t.Errorf("%v after retention { %s } calls of the last %v are listed, and events kept for %v; not %v and %v",
				step.wait, step.words, since, audit, step.since, step.audit)
		}
		g.Verify(t)
	}
}

func TestAConfigurationThatDoesNotGetUpChangesNoRetention(t *testing.T) {
	g := gatetest.Start(t, keeps("calls 30d\naudit 60d"))
	keeping(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	other := strings.Replace(g.Caddyfile(keeps("calls 10d\naudit 31d")), "http://:", "http://"+taken.Addr().String()+" {\n bind 127.0.0.1\n respond ok\n}\nhttp://:", 1)
	for range 8 { // apps start in any order
		if err := g.ReloadText(other); err == nil {
			t.Fatal("a configuration came up at an address that is taken")
		}
		keeping(t)
		if since, audit := callsSince(t, g), auditFor(t); since != 30*day || audit != 60*day {
			t.Fatalf("calls of the last %v are listed, and events kept for %v", since, audit)
		}
	}
}
