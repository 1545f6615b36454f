package caddymodule_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// reopenStore reloads to another store, which closes the store of config, and then back to
// config.
func reopenStore(t *testing.T, g *gatetest.Gate, config gatetest.Config) {
	t.Helper()
	elsewhere := gatetest.Config{Site: config.Site, Storage: gatetest.SmallStore(filepath.Join(t.TempDir(), "elsewhere"))}
	if err := g.Reload(elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(config); err != nil {
		t.Fatalf("the store cannot be opened again: %v", err)
	}
}

// onDisk returns a configuration with a store on disk, which can be opened again.
func onDisk(t *testing.T, site, app string) gatetest.Config {
	return gatetest.Config{Site: site, App: app, Storage: gatetest.SmallStore(filepath.Join(t.TempDir(), "store"))}
}

// with returns the configuration with other options of the app.
func with(config gatetest.Config, app string) gatetest.Config {
	config.App = app
	return config
}

func TestARolledBackCurrencyDoesNotChangeTheStore(t *testing.T) {
	euro := onDisk(t, gatetest.Proxied, "currency EUR")
	g := gatetest.Start(t, euro)
	g.RollBack(t, with(euro, "currency CNY"), func() {})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "5.00")
	reopenStore(t, g, euro)
	if w := g.Wallet(t, key.UserID); w.Balance.String() != "5.00" {
		t.Errorf("the wallet has %v", w.Balance)
	}
	if err := g.Reload(with(euro, "currency CNY")); err == nil || !strings.Contains(err.Error(), "EUR") {
		t.Errorf("with money in the store, a reload with another currency returned %v", err)
	}
}

// A configuration that goes live may change the currency before any money has moved.
func TestTheStoreHasTheCurrencyOfTheLastLiveConfiguration(t *testing.T) {
	euro := onDisk(t, gatetest.Proxied, "currency EUR")
	g := gatetest.Start(t, euro)
	key := g.NewKey(t, nil)
	if err := g.Reload(with(euro, "currency CNY")); err != nil {
		t.Fatal(err)
	}
	g.Credit(t, key.UserID, "5.00")
	if err := g.Reload(euro); err == nil || !strings.Contains(err.Error(), "CNY") {
		t.Errorf("a reload with the currency before returned %v", err)
	}
	reopenStore(t, g, with(euro, "currency CNY"))
}

// A configuration with another currency keeps the currency of the store if a user is credited
// while it starts, even after the check of the currency has passed.
func TestACurrencyIsRefusedWhenMoneyMovedMeanwhile(t *testing.T) {
	euro := onDisk(t, gatetest.Proxied, "currency EUR")
	g := gatetest.Start(t, euro)
	key := g.NewKey(t, nil)
	g.RollBack(t, with(euro, "currency CNY"), func() { g.Credit(t, key.UserID, "5.00") })
	reopenStore(t, g, euro)
	g.Verify(t)
}

// Settings that the store cannot accept are logged with one text. Requests that depend on
// them fail.
func TestSettingsThatCannotBeAppliedAreLoggedWithOneText(t *testing.T) {
	euro := onDisk(t, gatetest.Proxied, "currency EUR")
	g := gatetest.Start(t, euro)
	key := g.NewKey(t, nil)
	g.ReloadAfter(t, with(euro, "currency CNY"), func() { g.Credit(t, key.UserID, "5.00") })
	for range 3 {
		if got := g.Do(t, http.MethodGet, "/v1/usage", "X-Api-Key: "+key.Secret, ""); got.Status != http.StatusServiceUnavailable {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("msg") == "the settings of the live configuration were not applied to its store" && strings.Contains(l.Text("error"), "EUR")
	})
	if n := g.CountLines(func(l gatetest.Line) bool {
		return strings.Contains(l.Text("msg"), "live configuration") && l.Text("msg") != "the settings of the live configuration were not applied to its store"
	}); n != 0 {
		t.Errorf("%d log lines have another text", n)
	}
	if err := g.Reload(euro); err != nil {
		t.Fatal(err)
	}
	if got := g.Do(t, http.MethodGet, "/v1/usage", "X-Api-Key: "+key.Secret, ""); got.Status != http.StatusOK {
		t.Errorf("after it was replaced: got %d %s", got.Status, got.Body)
	}
	g.Verify(t)
}

func TestARolledBackMasterKeySealsNothing(t *testing.T) {
	config := onDisk(t, "modelgate_console", "secret "+masterKey(1))
	g := gatetest.Start(t, config)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	g.Command(t, gatetest.Password, "user", "create", "bob", "--password-stdin")
	ann, _ := g.Enrol(t, g.Login(t, "ann", gatetest.Password))
	next := with(config, "secret "+masterKey(2)+" "+masterKey(1))
	g.RollBack(t, next, func() {})
	g.Enrol(t, g.Login(t, "bob", gatetest.Password)) // must be sealed with the first key
	reopenStore(t, g, config)
	if got := logInWithCode(t, g, ann); got != http.StatusOK {
		t.Errorf("a code gets %d", got)
	}
	// The configuration that is rolled back opens a closed store.
	if err := g.Reload(gatetest.Config{Site: config.Site, Storage: gatetest.SmallStore(filepath.Join(t.TempDir(), "elsewhere"))}); err != nil {
		t.Fatal(err)
	}
	g.RollBack(t, next, func() {})
	if err := g.Reload(config); err != nil {
		t.Fatalf("after a failed start, a reload with the key before returned %v", err)
	}
	// A key that goes live is required from then on.
	if err := g.Reload(next); err != nil {
		t.Fatal(err)
	}
	g.NewKey(t, nil)
	if err := g.Reload(config); err == nil || !strings.Contains(err.Error(), "sealed with another master key") {
		t.Errorf("a reload with the key before returned %v", err)
	}
	if code, stdout, stderr := g.Command(t, "", "secret", "rotate", "--yes"); code != 0 {
		t.Errorf("rotate: exit code %d: %s%s", code, stdout, stderr)
	}
	reopenStore(t, g, with(config, "secret "+masterKey(2)))
}

// A configuration that does not go live creates no key file.
func TestOnlyALiveConfigurationCreatesAKeyFile(t *testing.T) {
	config := onDisk(t, "modelgate_console", "secret "+masterKey(1))
	g := gatetest.Start(t, config)
	file := filepath.Join(strings.Split(config.Storage, `"`)[1], "..", "store.key")
	g.RollBack(t, with(config, ""), func() {})
	if found, _ := filepath.Glob(file + "*"); len(found) != 0 {
		t.Errorf("%v was created", found)
	}
	if err := g.Reload(with(config, "")); err != nil {
		t.Fatal(err)
	}
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	if found, _ := filepath.Glob(file); len(found) != 1 {
		t.Errorf("%s was not created", file)
	}
}

func TestARolledBackRetentionDeletesNoCalls(t *testing.T) {
	g := gatetest.Start(t, retentionConfig("calls 90d\naudit 400d"))
	applyRetention(t)
	short := retentionConfig("calls 3d\naudit 30d")
	runtime := gatetest.Runtime(t)
	g.RollBack(t, short, func() {
		if err := caddymodule.Keep(runtime, t.Context()); err != nil {
			t.Error(err)
		}
	})
	applyRetention(t)
	if since := callsSince(t, g); since != 90*day {
		t.Errorf("the calls of the last %v are listed", since)
	}
	if kept := auditFor(t); kept != 400*day {
		t.Errorf("the audit log is kept for %v", kept)
	}
}

func TestARolledBackAllowListIsNotInForce(t *testing.T) {
	g := gatetest.Start(t, console)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	g.RollBack(t, with(console, "callback {\n allow 127.0.0.1:1\n}"), func() {})
	cookie := g.Login(t, "ann", gatetest.Password)
	got := g.Do(t, http.MethodPost, "/api/token/", cookie+"\nContent-Type: application/json",
		fmt.Sprintf(`{"name":"k","callback_url":"http://127.0.0.1:1/x","password":%q}`, gatetest.Password))
	if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "special address") {
		t.Errorf("a callback to this machine gets %d %s", got.Status, got.Body)
	}
}

// The servers of a configuration listen before it is live. Until then, servers with
// another currency answer no request.
func TestAnotherCurrencyIsNotServedBeforeItIsLive(t *testing.T) {
	euro := gatetest.Config{Site: gatetest.Proxied, App: "currency EUR"}
	g := gatetest.Start(t, euro)
	key := g.NewKey(t, nil)
	g.RollBack(t, with(euro, "currency CNY"), func() {
		for range 12 { // the kernel distributes them over both configurations
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL("/v1/usage"), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Close = true
			req.Header.Set("X-Api-Key", key.Secret)
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if !strings.Contains(string(body), `"EUR"`) {
					t.Errorf("got %d %s", resp.StatusCode, body)
				}
			}
			cancel()
		}
	})
	if got := g.Do(t, http.MethodGet, "/v1/usage", "X-Api-Key: "+key.Secret, ""); got.Status != http.StatusOK || !strings.Contains(got.Body, `"EUR"`) {
		t.Errorf("after it was rolled back: got %d %s", got.Status, got.Body)
	}
}
