package caddymodule_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestValidateWorksWhileTheServerRuns(t *testing.T) {
	dir := t.TempDir()
	config := gatetest.Config{Site: gatetest.Proxied, Storage: gatetest.SmallStore(filepath.Join(dir, "store"))}
	g := gatetest.Start(t, config)
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(g.Caddyfile(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := gatetest.Caddy(t, "", "validate", "--config", file); code != 0 || !strings.Contains(stdout, "Valid configuration") {
		t.Errorf("validate: exit code %d: %s%s", code, stdout, stderr)
	}

	// A second server is refused. The error names the store.
	second := strings.NewReplacer(g.AdminAddress, "off", "output gatetest", "output stderr").Replace(g.Caddyfile(config))
	if err := os.WriteFile(file, []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := gatetest.Caddy(t, "", "run", "--config", file)
	if code != 1 || !strings.Contains(stderr, filepath.Join(dir, "store")) {
		t.Errorf("a second server: exit code %d: %s", code, stderr)
	}
	if got := g.Do(t, http.MethodGet, "/v1/models", "", ""); got.Status != http.StatusUnauthorized {
		t.Errorf("the first server returns %d", got.Status)
	}
}

func TestAStoreHasOneCurrency(t *testing.T) {
	config := gatetest.Config{App: "currency EUR", Site: gatetest.Proxied}
	g := gatetest.Start(t, config)
	config.App = "currency CNY" // no money has moved yet
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	g.Credit(t, g.NewKey(t, nil).UserID, "1.00")
	config.App = "currency USD"
	if err := g.Reload(config); err == nil || !strings.Contains(err.Error(), "in CNY") {
		t.Errorf("the reload returned %v", err)
	}
}
