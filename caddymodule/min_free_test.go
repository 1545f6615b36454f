package caddymodule_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	_ "github.com/caddy-modelgate/modelgate/storage/badger"
)

func TestAReloadAppliesMinFreeAndWarnsOfMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	config := func(memory, minFree string) gatetest.Config {
		return gatetest.Config{Site: gatetest.Proxied, Storage: fmt.Sprintf("badger %q {\nmemory %s\nmin_free %s\n}", dir, memory, minFree)}
	}
	g := gatetest.Start(t, config("normal", "64MiB"))
	users := 0
	create := func() int {
		users++
		status, _ := g.Admin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": fmt.Sprintf("user%d", users)})
		return status
	}
	load := func(memory, minFree string) {
		t.Helper()
		if err := g.Reload(config(memory, minFree)); err != nil {
			t.Fatal(err)
		}
	}
	least := func() uint64 {
		_, least, err := gatetest.Runtime(t).Store.Space()
		if err != nil {
			t.Fatal(err)
		}
		return least
	}
	if got := create(); got != http.StatusOK {
		t.Fatalf("the first user gets %d", got)
	}
	load("normal", "1PiB")
	if got := create(); got != http.StatusServiceUnavailable {
		t.Errorf("with less free than min_free: got %d", got)
	}
	load("normal", "64MiB")
	if got := create(); got != http.StatusOK {
		t.Errorf("with the former min_free: got %d", got)
	}
	if g.Logged("needs a restart") {
		t.Error("the log demands a restart although memory is the same")
	}
	load("small", "17MiB")
	if got := create(); got != http.StatusOK || least() != 40<<20 {
		t.Errorf("got %d with a min_free of %d; the store still has normal memory", got, least())
	}
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("level") == "warn" && l.Text("memory") == "small" && strings.Contains(l.Text("msg"), "needs a restart")
	})
}
