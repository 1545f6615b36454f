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

// retentionConfig returns a configuration with options of retention.
func retentionConfig(options string) gatetest.Config {
	return gatetest.Config{Site: gatetest.Proxied, App: "retention {\n" + options + "\n}"}
}

// applyRetention runs the retention of the runtime, which otherwise runs once a minute.
func applyRetention(t *testing.T) {
	t.Helper()
	if err := caddymodule.Keep(gatetest.Runtime(t), t.Context()); err != nil {
		t.Fatal(err)
	}
}

// callsSince returns the age of the oldest calls that are listed.
func callsSince(t *testing.T, g *gatetest.Gate) time.Duration {
	t.Helper()
	before := g.Now()
	from, err := gatetest.Runtime(t).Ledger.CallsFrom(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return before.Sub(from).Round(time.Hour)
}

// auditFor records an event and returns how long it is kept.
func auditFor(t *testing.T) (kept time.Duration) {
	t.Helper()
	runtime := gatetest.Runtime(t)
	err := runtime.Store.Update(t.Context(), func(txn storage.Txn) error {
		now := runtime.Store.Now()
		return audit.Record(t.Context(), purgeRecorder{txn, func(purge time.Time) { kept = purge.Sub(now) }}, now, &audit.Event{Actor: "operator", Action: "test"})
	})
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

// purgeRecorder is a transaction that records when written rows expire.
type purgeRecorder struct {
	storage.Txn
	record func(purge time.Time)
}

func (r purgeRecorder) Set(key, val []byte, purge time.Time) error {
	r.record(purge)
	return r.Txn.Set(key, val, purge)
}

func TestRecordsAreKeptAsConfigured(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	g.Backend.On("m", gatetest.JSON(200, `{"choices":[{"text":"four","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`))
	key := g.NewKey(t, nil)
	call := func() {
		t.Helper()
		if got := g.Do(t, "POST", "/v1/completions", "X-Api-Key: "+key.Secret, `{"model":"m","prompt":"hello"}`); got.Status != 200 {
			t.Fatalf("a call gets %d %s", got.Status, got.Body)
		}
		g.WalletAtRest(t, key.UserID)
	}
	for _, step := range []struct {
		options      string // empty: no reload
		wait         time.Duration
		since, audit time.Duration
	}{
		{"", 0, 90 * day, 400 * day},
		{"calls 10d\naudit 30d", 0, 10 * day, 30 * day},
		{"", 11 * day, 10 * day, 30 * day},
		{"calls 40d", 0, 10 * day, 400 * day}, // earlier calls still expire after 10d
		{"", 20 * day, 20 * day, 400 * day},   // they have expired
		{"", 30 * day, 40 * day, 400 * day},
		{"tasks 3d", 0, 40 * day, 400 * day},
	} {
		if step.options != "" {
			if err := g.Reload(retentionConfig(step.options)); err != nil {
				t.Fatal(err)
			}
		}
		applyRetention(t)
		g.Wait(step.wait)
		call()
		if since, audit := callsSince(t, g), auditFor(t); since != step.since || audit != step.audit {
			t.Errorf("%v after retention { %s }: calls of the last %v are listed, events are kept for %v; want %v and %v",
				step.wait, step.options, since, audit, step.since, step.audit)
		}
		g.Verify(t)
	}
}

func TestAFailedReloadChangesNoRetention(t *testing.T) {
	g := gatetest.Start(t, retentionConfig("calls 30d\naudit 60d"))
	applyRetention(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	other := strings.Replace(g.Caddyfile(retentionConfig("calls 10d\naudit 31d")), "http://:", "http://"+taken.Addr().String()+" {\n bind 127.0.0.1\n respond ok\n}\nhttp://:", 1)
	for range 8 { // apps start in any order
		if err := g.ReloadText(other); err == nil {
			t.Fatal("a configuration started with an address in use")
		}
		applyRetention(t)
		if since, audit := callsSince(t, g), auditFor(t); since != 30*day || audit != 60*day {
			t.Fatalf("calls of the last %v are listed, events are kept for %v", since, audit)
		}
	}
}
