package caddymodule_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// series returns the values of the metrics of modelgate, by name with labels.
func series(t *testing.T, g *gatetest.Gate) map[string]string {
	t.Helper()
	status, text := g.Admin(t, http.MethodGet, "/metrics", nil)
	if status != http.StatusOK {
		t.Fatalf("/metrics gets %d", status)
	}
	found := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "modelgate_") {
			found[name] = value
		}
	}
	return found
}

func TestMetricsOfCallsHaveOnlyFixedLabels(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	before := series(t, g)

	const model = "a-model-that-is-no-label"
	g.Backend.On(model, gatetest.JSON(http.StatusOK, `{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":10,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}`))
	body := strings.Replace(strings.Replace(callBody, "MODEL", model, 1), "true", "false", 1)
	calls := []gatetest.Answer{
		g.Do(t, http.MethodPost, "/v1/chat/completions", "Authorization: Bearer "+key.Secret, body),
		g.Do(t, http.MethodPost, "/v1/chat/completions", "Authorization: Bearer "+key.Secret, body),
		g.Do(t, http.MethodPost, "/v1/chat/completions", "", body),
		g.Do(t, http.MethodPost, "/v1/chat/completions", "Authorization: Bearer "+key.Secret, "{"),
	}
	for _, call := range calls {
		g.CallLine(t, call.RequestID()) // it is counted before it is logged
	}

	after := series(t, g)
	for name, want := range map[string]float64{
		`modelgate_requests_total{ended="complete",route="chat",usage="reported"}`: 2,
		`modelgate_request_duration_seconds_count{route="chat"}`:                   2,
		`modelgate_first_chunk_seconds_count{route="chat"}`:                        2,
		`modelgate_tokens_total{kind="input",route="chat"}`:                        12,
		`modelgate_tokens_total{kind="cache_read",route="chat"}`:                   8,
		`modelgate_tokens_total{kind="output",route="chat"}`:                       10,
		`modelgate_tokens_total{kind="reasoning",route="chat"}`:                    2,
		`modelgate_refusals_total{code="UNAUTHORIZED",route="chat"}`:               1,
		`modelgate_refusals_total{code="INVALID_JSON",route="chat"}`:               1,
		`modelgate_in_flight{route="chat"}`:                                        0,
	} {
		if got := number(after[name]) - number(before[name]); got != want || after[name] == "" {
			t.Errorf("%s grew by %v, want %v", name, got, want)
		}
	}
	store := fmt.Sprintf("{store=%q}", "gatetest:"+g.Store)
	if after["modelgate_credentials"+store] != "1" || after["modelgate_store_failed"+store] != "0" || number(after["modelgate_store_commits_total"+store]) < 3 {
		t.Errorf("the store has %q credentials, %q failed, %q commits", after["modelgate_credentials"+store], after["modelgate_store_failed"+store], after["modelgate_store_commits_total"+store])
	}
	for name := range after {
		for _, word := range []string{model, key.ID, key.UserID, key.Secret, "user-", calls[0].RequestID()} {
			if strings.Contains(name, word) {
				t.Errorf("%s holds %q", name, word)
			}
		}
	}
}

func number(text string) (n float64) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

func TestARunningCallIsCountedAfterAReload(t *testing.T) {
	g := gatetest.Start(t, longGrace)
	key := g.NewKey(t, nil)
	resp, end := stream(t, g, key.Secret, "in-flight")
	const inFlight = `modelgate_in_flight{route="chat"}`
	if got := series(t, g)[inFlight]; got != "1" {
		t.Errorf("in flight: %s", got)
	}
	if err := g.Reload(gatetest.Config{Site: gatetest.Proxied, Global: "grace_period 2m"}); err != nil {
		t.Fatal(err)
	}
	if got := series(t, g)[inFlight]; got != "1" {
		t.Errorf("in flight after a reload: %s", got)
	}
	finish(t, g, resp, end)
	if got := series(t, g)[inFlight]; got != "0" {
		t.Errorf("in flight after the end: %s", got)
	}
}
