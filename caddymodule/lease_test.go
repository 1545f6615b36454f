package caddymodule_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const (
	event    = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}]}\n\n"
	done     = "data: [DONE]\n\n"
	callBody = `{"model":"MODEL","stream":true,"messages":[{"role":"user","content":"hello"}]}`
)

// stream opens a stream of a model and reads its first event. The backend ends the stream
// after a call of end.
func stream(t *testing.T, g *gatetest.Gate, key, model string) (resp *http.Response, end func()) {
	t.Helper()
	ended := make(chan struct{})
	g.Backend.On(model, gatetest.Then(gatetest.Stream(event), func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-ended:
			gatetest.Send(w, done)
		case <-r.Context().Done():
		}
	}))
	resp = g.Open(t.Context(), t, http.MethodPost, "/v1/chat/completions", "Authorization: Bearer "+key, strings.Replace(callBody, "MODEL", model, 1))
	got := make([]byte, len(event))
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != event {
		t.Fatalf("read %q (%v)", got, err)
	}
	return resp, func() { close(ended) }
}

// finish ends a stream and checks that its client gets the rest.
func finish(t *testing.T, g *gatetest.Gate, resp *http.Response, end func()) {
	t.Helper()
	end()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(rest) != done {
		t.Errorf("the rest of the stream is %q (%v)", rest, err)
	}
	if line := g.CallLine(t, resp.Header.Get("X-Request-Id")); line.Text("ended") != "complete" {
		t.Errorf("logged %v", line)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func models(t *testing.T, g *gatetest.Gate, key string) int {
	t.Helper()
	return g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+key, "").Status
}

// longGrace is a configuration with a grace period that is longer than any test.
var longGrace = gatetest.Config{Site: gatetest.Proxied, Global: "grace_period 1m"}

func TestAReloadWithTheSameStoreKeepsItOpenAndStreamsRunning(t *testing.T) {
	g := gatetest.Start(t, longGrace)
	key := g.NewKey(t, nil)
	resp, end := stream(t, g, key.Secret, "same")
	_, closed := gatetest.Engine(g.Store)

	changed := longGrace
	changed.App = "limits {\n idle 1m\n}"
	for range 3 {
		if err := g.Reload(changed); err != nil {
			t.Fatal(err)
		}
		changed.App = "version_header new-version"
	}
	if isClosed(closed) {
		t.Fatal("the store was closed by a reload")
	}
	if status := models(t, g, key.Secret); status != http.StatusOK {
		t.Errorf("a key gets %d after the reload", status)
	}
	// A change through the new configuration applies to the same runtime.
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+key.ID+"/revoke", nil, nil)
	if status := models(t, g, key.Secret); status != http.StatusUnauthorized {
		t.Errorf("a revoked key gets %d", status)
	}
	finish(t, g, resp, end)
	if isClosed(closed) {
		t.Error("the end of an old stream closed the store")
	}
}

func TestAReloadWithAnotherStoreClosesTheFirstWhenItsLastStreamHasEnded(t *testing.T) {
	g := gatetest.Start(t, longGrace)
	key := g.NewKey(t, nil)
	resp, end := stream(t, g, key.Secret, "other")
	_, first := gatetest.Engine(g.Store)

	other := longGrace
	other.Store = t.Name() + "/second"
	if err := g.Reload(other); err != nil {
		t.Fatal(err)
	}
	if status := models(t, g, key.Secret); status != http.StatusUnauthorized {
		t.Errorf("a key of the first store gets %d from the second", status)
	}
	if status := models(t, g, g.NewKey(t, nil).Secret); status != http.StatusOK {
		t.Errorf("a key of the second store gets %d", status)
	}
	if isClosed(first) {
		t.Fatal("the first store was closed during a stream")
	}
	finish(t, g, resp, end)
	select {
	case <-first:
	case <-time.After(gatetest.Timeout):
		t.Error("the first store was never closed")
	}
	_, second := gatetest.Engine(g.Store)
	if isClosed(second) {
		t.Error("the second store was closed")
	}
}

func TestAFailedReloadKeepsTheConfigurationAndTheStore(t *testing.T) {
	g := gatetest.Start(t, longGrace)
	key := g.NewKey(t, nil)
	_, closed := gatetest.Engine(g.Store)
	broken := longGrace
	broken.Global += "\nservers {\n listener_wrappers {\n nothing\n}\n}"
	if err := g.Reload(broken); err == nil {
		t.Fatal("a broken configuration was accepted")
	}
	// A configuration that provisions but cannot listen.
	if err := g.ReloadText(strings.Replace(g.Caddyfile(longGrace), "bind 127.0.0.1", "bind 192.0.2.1", 1)); err == nil {
		t.Fatal("a configuration that cannot listen was accepted")
	}
	if isClosed(closed) {
		t.Error("the store was closed")
	}
	if status := models(t, g, key.Secret); status != http.StatusOK {
		t.Errorf("a key gets %d", status)
	}
}

func TestAFailStopIs503UntilARestart(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied + "\nmodelgate_health"})
	key := g.NewKey(t, nil)
	resp, end := stream(t, g, key.Secret, "begun")
	g.FailStore(t)
	for path, method := range map[string]string{"/v1/chat/completions": http.MethodPost, "/v1/models": http.MethodGet} {
		got := g.Do(t, method, path, "Authorization: Bearer "+key.Secret, strings.Replace(callBody, "MODEL", "late", 1))
		if got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Body, "STORE_UNAVAILABLE") || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s gets %d %s", path, got.Status, got.Body)
		}
	}
	if len(g.Backend.Seen("late")) != 0 {
		t.Error("a call was forwarded after the fail stop")
	}
	if status, answer := g.Admin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "late"}); status != http.StatusServiceUnavailable || !strings.Contains(string(answer), "STORE_UNAVAILABLE") {
		t.Errorf("the admin API returns %d %s", status, answer)
	}
	finish(t, g, resp, end)
}

func TestAReloadReopensAStoreThatIsStillClosing(t *testing.T) {
	one, other := longGrace, longGrace
	one.Storage, other.Storage = "badger "+t.TempDir()+"/one", "badger "+t.TempDir()+"/other"
	g := gatetest.Start(t, one)
	key := g.NewKey(t, nil)
	for range 6 {
		resp, end := stream(t, g, key.Secret, "last")
		if err := g.Reload(other); err != nil {
			t.Fatal(err)
		}
		end() // the last user of the first store, which takes a while to close
		if err := g.Reload(one); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
	}
}
