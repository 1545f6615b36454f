package health_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestHealthAndReadiness(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_health\n" + gatetest.Proxied})
	check := func(path string, status int, body string) {
		t.Helper()
		got := g.Do(t, http.MethodGet, path, "", "")
		if got.Status != status || got.Body != body || got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s is answered %d %s %v, want %d %s", path, got.Status, got.Body, got.Header, status, body)
		}
	}
	check("/healthz", 200, `{"status":"ok"}`)
	check("/readyz", 200, `{"status":"ready"}`)
	check("/readyz/tasks", 503, `{"status":"unavailable","reasons":["backends"]}`) // there is none
	g.FailStore(t)
	check("/healthz", 200, `{"status":"ok"}`)
	check("/readyz", 503, `{"status":"unavailable","reasons":["store"]}`)
	check("/readyz", 503, `{"status":"unavailable","reasons":["store"]}`)
	check("/readyz/tasks", 503, `{"status":"unavailable","reasons":["store"]}`)
	for _, path := range []string{"/readyz", "/readyz/tasks"} {
		n := g.CountLines(func(line gatetest.Line) bool {
			return line.Text("path") == path && line.Text("reason") == "store" && strings.Contains(line.Text("error"), "sync failed")
		})
		if n != 1 {
			t.Errorf("%d log lines have the reason why %s is not ready, want 1", n, path)
		}
	}
}

func TestReadinessWritesToTheStoreAtMostOnceASecond(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_health"})
	engine, _ := gatetest.Engine(g.Store)
	before := engine.Commits()
	for range 50 {
		g.Do(t, http.MethodGet, "/readyz", "", "")
	}
	// The requests may fall into two or three seconds, on a slow machine.
	if n := engine.Commits() - before; n < 1 || n > 10 {
		t.Errorf("50 probes made %d commits", n)
	}
}

func TestProbesAcceptGETAndHEADOnly(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_health\nrespond other"})
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := g.Do(t, http.MethodHead, path, "", ""); got.Status != http.StatusOK || got.Body != "" {
			t.Errorf("HEAD %s is answered %d %q", path, got.Status, got.Body)
		}
		got := g.Do(t, http.MethodPost, path, "", "{}")
		if got.Status != http.StatusMethodNotAllowed || got.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s is answered %d, Allow %q", path, got.Status, got.Header.Get("Allow"))
		}
	}
	for path, want := range map[string]string{"/healthz/": "", "/Healthz": "", "/": "other", "/health": "other"} {
		got := g.Do(t, http.MethodGet, path, "", "")
		if want == "" && got.Status != http.StatusNotFound || want != "" && got.Body != want {
			t.Errorf("%s is answered %d %s", path, got.Status, got.Body)
		}
	}
}
