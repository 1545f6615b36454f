// Package gatetest runs the gateway in tests as in production: a real Caddy in
// this process, started from a Caddyfile. The store is in memory. The backend
// answers as the test defines, and records its requests.
//
// Caddy is a process-wide singleton, so one Gate runs at a time: [Start] waits
// until the previous test has ended. Subtests of one test share their Gate and
// may be parallel; their requests are distinguished by model and key. [Config] is
// the configuration of a [Gate]. The package imports the complete gateway and
// Caddy's standard modules. Only tests import it.
package gatetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard" // as in builds for operators
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	_ "github.com/caddy-modelgate/modelgate" // everything in a build
)

// Timeout is the time limit of every wait. It only matters to failing tests: with the
// race detector on a busy machine, the gateway needs 10 seconds for a body of 32 MiB.
const Timeout = 30 * time.Second

// Config has the text that a test adds to the Caddyfile of its Gate. In all of its
// fields, BACKEND stands for the address of the backend.
type Config struct {
	// Global is added to the global options.
	Global string

	// App is added to the modelgate option after its storage. If it has
	// backends and no media option, files are kept in a directory of the Gate.
	App string

	// Site is added to the one site, which serves every host.
	Site string

	// Store is the name of the store in memory. Default: a new store for each
	// Start.
	Store string

	// Storage replaces that store, such as "badger /path".
	Storage string

	// LogFormat is the format of the log, whose lines must be JSON. Default:
	// json.
	LogFormat string
}

// Proxied is a site with all routes of calls, each in front of the backend.
const Proxied = `
	modelgate_messages {
		reverse_proxy BACKEND
	}
	modelgate_completions {
		reverse_proxy BACKEND
	}
	modelgate_openai {
		reverse_proxy BACKEND
	}
`

// Gate is a running Caddy with the gateway.
type Gate struct {
	// Address is host:port of the site.
	Address string

	// Backend is the service that BACKEND in the Caddyfile stands for.
	Backend *Backend

	// Store is the name of the store, for [Engine].
	Store string

	// AdminAddress is the address of the admin endpoint in the form of the flag
	// --address.
	AdminAddress string

	admin    *adminClient
	dir      string // for all files of the Gate
	logFrom  int    // index of the first log line of this Gate
	reloaded bool
}

// running is locked by the test whose Gate runs.
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

	// Another process may take a port before Caddy uses it.
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

// Reload loads another configuration with the same addresses.
func (g *Gate) Reload(config Config) error {
	if config.Store != "" {
		g.Store = config.Store
	}
	return g.ReloadText(g.Caddyfile(config))
}

// ReloadText loads the text of a Caddyfile unchanged.
func (g *Gate) ReloadText(caddyfile string) error {
	g.reloaded = true
	return g.put(caddyfile)
}

// URL returns the URL of a path of the site.
func (g *Gate) URL(path string) string { return "http://" + g.Address + path }

// Caddyfile returns the complete text of a configuration.
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

// put loads a Caddyfile. When it returns, no later request is served by the
// previous configuration. Caddy stops the old servers, but does not wait until
// they no longer accept connections.
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
	for deadline := time.Now().Add(Timeout); caddy.ListenerUsage("tcp", g.Address) > 1 || sockets(g.Address) > 1; <-tick.C {
		if time.Now().After(deadline) {
			return errors.New("the servers of the previous configuration still listen")
		}
	}
	return nil
}

// sockets returns how many sockets listen at an IPv4 address, or zero if the kernel has no
// list of them. Each configuration of Caddy has its own socket. Caddy releases a listener
// before it closes the socket, and connections in the queue of a closed socket are reset.
func sockets(address string) (n int) {
	at := netip.MustParseAddrPort(address)
	ip := at.Addr().As4()
	local := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), at.Port())
	list, _ := os.ReadFile("/proc/self/net/tcp")
	for line := range strings.Lines(string(list)) {
		const listening = "0A"
		if f := strings.Fields(line); len(f) > 3 && f[1] == local && f[3] == listening {
			n++
		}
	}
	return n
}

// Adapt converts the text of a Caddyfile to JSON.
func Adapt(text string) ([]byte, error) {
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return adapted, err
}

// freeAddress returns an unused address. It holds the UDP port of the same
// number until the test ends, so that the tests of other packages skip it.
// Caddy would share the TCP port.
func freeAddress(t testing.TB) string {
	t.Helper()
	for {
		held, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { held.Close() })
		address := held.LocalAddr().String()
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
