// Package gatetest runs the gateway in tests as in production: a real Caddy in
// this process, started from a Caddyfile, with a store in memory and a backend
// that answers as the test says and records what it receives.
//
// Caddy is a process-wide singleton, so one Gate runs at a time: [Start] waits
// until the previous test has ended. Subtests of one test share their Gate and
// may be parallel; their requests are distinguished by model and key. Only
// tests import this package.
package gatetest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard" // what operators have, too
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	_ "github.com/caddy-modelgate/modelgate" // all that a build contains
)

// Patience bounds every wait for something that is sure to come: with the race
// detector on a busy machine, a body of 32 MiB takes 10 seconds. A test that
// needs so long has failed.
const Patience = 30 * time.Second

// Config is what a test adds to the Caddyfile of its Gate. In all of it,
// BACKEND stands for the address of the backend.
type Config struct {
	// Global goes into the global options.
	Global string

	// App goes into the modelgate option, beside its storage. Where it has
	// backends and says nothing of media, files are kept in a directory of the Gate.
	App string

	// Site goes into the one site, which takes every host.
	Site string

	// Store names the store in memory. Default: one of its own for each Start.
	Store string

	// Storage stands in the place of that store, as in "badger /path".
	Storage string

	// LogFormat is the format of the log, of which each line must be JSON.
	// Default: json.
	LogFormat string
}

// Proxied is a site with both doors, each before the backend.
const Proxied = `
	modelgate_messages {
		reverse_proxy BACKEND
	}
	modelgate_completions {
		reverse_proxy BACKEND
	}
`

// Gate is a running Caddy with the gate in it.
type Gate struct {
	// Address is host:port of the site.
	Address string

	// Backend is what BACKEND in the Caddyfile leads to.
	Backend *Backend

	// Store is the name of the store, for [Engine].
	Store string

	// AdminAddress is where the admin endpoint listens, as --address takes it.
	AdminAddress string

	admin    *adminClient
	dir      string // of what a Gate keeps in files
	logFrom  int    // the first line of the process's log that is of this Gate
	reloaded bool
}

// running is held by the test whose Gate runs.
var running sync.Mutex

// Start runs a Gate until t and its subtests have ended.
func Start(t testing.TB, config Config) *Gate {
	t.Helper()
	running.Lock()
	t.Cleanup(running.Unlock)

	g := &Gate{Backend: newBackend(t), Store: config.Store, logFrom: logged.length()}
	if g.Store == "" {
		g.Store = t.Name()
	}
	dir := shortDir(t)
	g.dir = dir
	g.AdminAddress = "unix/" + filepath.Join(dir, "admin.sock")
	g.admin = newAdminClient(filepath.Join(dir, "admin.sock"))
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Errorf("stopping Caddy: %v", err)
		}
	})

	// Between the choice of a port and Caddy's use of it, another process may
	// take it.
	var err error
	for range 3 {
		g.Address = freeAddress(t)
		if err = g.put(g.Caddyfile(config)); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		t.Fatalf("starting Caddy: %v\n%s", err, g.Caddyfile(config))
	}
	return g
}

// Reload puts another configuration in force, on the same addresses.
func (g *Gate) Reload(config Config) error {
	if config.Store != "" {
		g.Store = config.Store
	}
	return g.ReloadText(g.Caddyfile(config))
}

// ReloadText puts a Caddyfile in force as it stands.
func (g *Gate) ReloadText(caddyfile string) error {
	g.reloaded = true
	return g.put(caddyfile)
}

// URL returns the URL of a path of the site.
func (g *Gate) URL(path string) string { return "http://" + g.Address + path }

// Caddyfile returns the whole of a configuration.
func (g *Gate) Caddyfile(config Config) string {
	app := config.App
	if strings.Contains(app, "backend ") && !strings.Contains(app, "media") {
		app += fmt.Sprintf("\nmedia {\npath %q\n}\n", filepath.Join(g.dir, "media"))
	}
	storage := config.Storage
	if storage == "" {
		storage = fmt.Sprintf("gatetest %q", g.Store)
	}
	format := config.LogFormat
	if format == "" {
		format = "json"
	}
	text := `{
	admin ` + g.AdminAddress + `
	persist_config off
	auto_https off
	log default {
		output gatetest
		level DEBUG
		format ` + format + `
	}
	` + config.Global + `
	modelgate {
		storage ` + storage + `
		` + app + `
	}
}
http://:PORT {
	bind 127.0.0.1
	` + config.Site + `
}
`
	_, port, _ := net.SplitHostPort(g.Address)
	return strings.NewReplacer("PORT", port, "BACKEND", g.Backend.Address).Replace(text)
}

// put puts a Caddyfile in force. When it returns, nothing is answered by the
// configuration before any more that is asked from then on: Caddy tells the old
// servers to stop, and does not wait until they accept no more.
func (g *Gate) put(caddyfile string) error {
	adapted, err := Adapt(caddyfile)
	if err != nil {
		return err
	}
	if err := caddy.Load(adapted, true); err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); caddy.ListenerUsage("tcp", g.Address) > 1; <-tick.C {
		if time.Now().After(deadline) {
			return errors.New("the servers before still listen")
		}
	}
	return nil
}

// Adapt turns the text of a Caddyfile into the JSON of its configuration.
func Adapt(text string) ([]byte, error) {
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return adapted, err
}

// freeAddress returns an address of this machine on which nobody listens. The port
// of UDP by the same number is kept until the test ends: the tests of another
// package find another one by that, while Caddy would share the port with whoever
// has it already.
func freeAddress(t testing.TB) string {
	t.Helper()
	for {
		claim, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { claim.Close() })
		address := claim.LocalAddr().String()
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
}

// shortDir returns a directory whose path is short enough for sockets in it.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
