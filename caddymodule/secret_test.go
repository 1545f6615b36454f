package caddymodule_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// console is a configuration with the console.
var console = gatetest.Config{Site: "modelgate_console"}

// masterKey returns the text of a master key. Each seed has another key.
func masterKey(seed byte) string {
	key := make([]byte, 32)
	for i := range key {
		key[i] = seed + byte(i)
	}
	return base64.StdEncoding.EncodeToString(key)
}

// logInWithCode logs the user ann in with a code and returns the status. 200 means that
// the gateway could decrypt the seed of the factor.
func logInWithCode(t *testing.T, g *gatetest.Gate, app *gatetest.Authenticator) int {
	t.Helper()
	cookie := g.Login(t, "ann", gatetest.Password)
	return g.Do(t, http.MethodPost, "/api/user/login/2fa", cookie+"\nContent-Type: application/json", app.Code(t)).Status
}

func TestTheKeyFileIsCreatedOnceAndThenRequired(t *testing.T) {
	dir := t.TempDir()
	config := console
	config.Storage = gatetest.SmallStore(filepath.Join(dir, "store"))
	g := gatetest.Start(t, config)
	file := filepath.Join(dir, "store.key")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key file is %v (%v)", info, err)
	}
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	app, _ := g.Enrol(t, g.Login(t, "ann", gatetest.Password))
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	// A reload to another store closes the first one.
	elsewhere := config
	elsewhere.Storage = gatetest.SmallStore(filepath.Join(dir, "elsewhere"))
	reopen := func() error {
		if err := g.Reload(elsewhere); err != nil {
			t.Fatal(err)
		}
		return g.Reload(config)
	}
	if err := reopen(); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(file); string(again) != string(first) {
		t.Error("a second start changed the key file")
	}
	if got := logInWithCode(t, g, app); got != http.StatusOK {
		t.Errorf("a code gets %d after a second start", got)
	}

	other, err := os.ReadFile(filepath.Join(dir, "elsewhere.key"))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		spoil func() error
		want  string
	}{
		"gone":                 {func() error { return os.Remove(file) }, "store.key: missing"},
		"another one":          {func() error { return os.WriteFile(file, other, 0o600) }, "sealed with another master key"},
		"open to others":       {func() error { return os.Chmod(file, 0o644) }, "chmod 600"},
		"in the configuration": {func() error { config.App = "secret " + masterKey(1); return nil }, "sealed with another master key"},
	} {
		if err := g.Reload(elsewhere); err != nil {
			t.Fatal(err)
		}
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		err := g.Reload(config)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), masterKey(1)) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
		config.App = ""
		os.Remove(file)
		if err := os.WriteFile(file, first, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if got := logInWithCode(t, g, app); got != http.StatusOK {
		t.Errorf("with the first key file, a code gets %d", got)
	}
}

func TestTheKeyFileIsRotatedWhileTheGateRuns(t *testing.T) {
	dir := t.TempDir()
	config := console
	config.Storage = gatetest.SmallStore(filepath.Join(dir, "store"))
	g := gatetest.Start(t, config)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	app, _ := g.Enrol(t, g.Login(t, "ann", gatetest.Password))
	file := filepath.Join(dir, "store.key")
	first, _ := os.ReadFile(file)

	if code, _, stderr := g.Command(t, "", "secret", "rotate"); code != 4 || !strings.Contains(stderr, "not confirmed") {
		t.Errorf("without --yes: exit code %d: %s", code, stderr)
	}
	ended, stdout, stderr := g.Command(t, "", "secret", "rotate", "--yes", "--json")
	var done struct {
		Resealed int    `json:"resealed"`
		KeyFile  string `json:"key_file"`
	}
	if err := json.Unmarshal([]byte(stdout), &done); ended != 0 || err != nil || done.Resealed < 1 || done.KeyFile != file {
		t.Fatalf("exit code %d: %s%s", ended, stdout, stderr)
	}
	second, _ := os.ReadFile(file)
	for line := range strings.Lines(string(first)) {
		if !strings.HasPrefix(line, "#") && strings.Contains(string(second), line) {
			t.Error("the file contains the old key")
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file is %v (%v)", info.Mode(), err)
	}
	if got := logInWithCode(t, g, app); got != http.StatusOK {
		t.Errorf("a code gets %d after the rotation", got)
	}
	elsewhere := config
	elsewhere.Storage = gatetest.SmallStore(filepath.Join(dir, "elsewhere"))
	if err := g.Reload(elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if got := logInWithCode(t, g, app); got != http.StatusOK {
		t.Errorf("a code gets %d after the rotation and a start", got)
	}
}

func TestAReloadWithoutTheConfiguredKeyFails(t *testing.T) {
	dir := t.TempDir()
	config := console
	config.Storage, config.App = gatetest.SmallStore(filepath.Join(dir, "store")), "secret "+masterKey(1)
	g := gatetest.Start(t, config)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	app, _ := g.Enrol(t, g.Login(t, "ann", gatetest.Password))
	file := filepath.Join(dir, "store.key")
	if _, err := os.Stat(file); err == nil {
		t.Error("a key file was created although a key is configured")
	}
	config.App = ""
	if err := g.Reload(config); err == nil || !strings.Contains(err.Error(), "store.key: missing") {
		t.Errorf("got %v", err)
	}
	if got := logInWithCode(t, g, app); got != http.StatusOK {
		t.Errorf("with the configuration before, a code gets %d", got)
	}
	if err := os.WriteFile(file, []byte(masterKey(1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if got := logInWithCode(t, g, app); got != http.StatusOK {
		t.Errorf("with the key in the file a code gets %d", got)
	}
}

func TestConfiguredKeysAreChangedByAReload(t *testing.T) {
	config := console
	config.App = "secret " + masterKey(1)
	g := gatetest.Start(t, config)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	app, _ := g.Enrol(t, g.Login(t, "ann", gatetest.Password))

	config.App = "secret " + masterKey(2)
	if err := g.Reload(config); err == nil || !strings.Contains(err.Error(), "sealed with another master key") {
		t.Errorf("with the wrong key, the reload returned %v", err)
	}
	if got := logInWithCode(t, g, app); got != http.StatusOK {
		t.Errorf("with the configuration before, a code gets %d", got)
	}
	config.App = "secret " + masterKey(2) + " " + masterKey(1)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := g.Command(t, "", "secret", "rotate", "--yes"); code != 0 || !strings.Contains(stdout, "remove the keys after the first") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	config.App = "secret " + masterKey(2)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if got := logInWithCode(t, g, app); got != http.StatusOK {
		t.Errorf("a code gets %d after the change", got)
	}
	for _, seed := range []byte{1, 2} {
		if g.Logged(masterKey(seed)) {
			t.Error("a master key is in the log")
		}
	}
	if err := g.Reload(gatetest.Config{Site: console.Site, App: "secret AAAA"}); err == nil || !strings.Contains(err.Error(), "32 random bytes") || strings.Contains(err.Error(), "AAAA") {
		t.Errorf("with an invalid key, the reload returned %v", err)
	}
	if err := g.Reload(gatetest.Config{Site: console.Site, App: "secret {env.MODELGATE_NOT_SET}"}); err == nil {
		t.Error("an empty secret was accepted")
	}
}
