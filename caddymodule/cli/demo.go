package cli

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

var demoCommand = command{
	use: "demo", short: "Starts a whole gateway on this machine, with a backend to try and a key", run: runDemo,
	flags: []flag{
		{name: "listen", value: "127.0.0.1:0", help: "Address to serve at; port 0 takes a free one"},
		{name: "data", value: "", help: "Directory to keep everything in (default: a temporary one, removed at the end)"},
	},
}

//go:embed demo_caddyfile.tmpl demo_introduction.tmpl
var demoFiles embed.FS

// demoCaddyfile is the configuration of the demo.
var demoCaddyfile = template.Must(template.ParseFS(demoFiles, "demo_caddyfile.tmpl"))

// demoRun is the address and the credentials of a running demo, as --json prints them.
type demoRun struct {
	BaseURL     string `json:"base_url"`
	Admin       string `json:"admin"` // for --address
	User        string `json:"user"`
	Password    string `json:"password"`
	APIKey      string `json:"api_key"`
	AccessToken string `json:"access_token"`
}

func runDemo(c *call) error {
	caddy.TrapSignals()
	data, remove := c.flag("data"), func() {}
	if data == "" {
		temp, err := os.MkdirTemp("", "modelgate-demo-")
		if err != nil {
			return err
		}
		data, remove = temp, func() { _ = os.RemoveAll(temp) }
		caddy.OnExit(func(context.Context) { remove() })
	}
	run, err := startDemo(c.Context(), c.flag("listen"), data, c.ErrOrStderr())
	if err != nil {
		remove()
		return err
	}
	if err := c.printed(run, func(w *tabwriter.Writer, _ *call, _ []byte) error { return introduction.Execute(w, run) }); err != nil {
		return err
	}
	select {} // until a signal ends the process
}

// startDemo runs the Caddyfile and makes a user with a key, an access token and
// some money. The callbacks of the key go to a receiver, which writes a line for each.
func startDemo(ctx context.Context, listen, data string, lines io.Writer) (*demoRun, error) {
	data, err := filepath.Abs(data)
	if err != nil {
		return nil, err
	}
	free, err := freeAddresses(listen, "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	callbacks, err := newReceiver(lines)
	if err != nil {
		return nil, err
	}
	config, err := adaptDemo(free[0], free[1], data, callbacks.address())
	if err != nil {
		return nil, err
	}
	if err := caddy.Load(config, true); err != nil {
		return nil, err
	}
	run := &demoRun{BaseURL: demoBaseURL(free[0]), Admin: free[1], User: "demo", Password: rand.Text()}
	return run, run.provide(ctx, callbacks)
}

func adaptDemo(listen, admin, data, receiver string) ([]byte, error) {
	// Without its host the site would listen at all addresses of the machine.
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	base, sites := demoBaseURL(listen), "http://"+listen
	if base != sites {
		sites += ", " + base // both the address and the name are served
	}
	var text strings.Builder
	if err := demoCaddyfile.Execute(&text, map[string]string{
		"Host": host, "BaseURL": base, "Sites": sites, "Admin": admin, "Data": filepath.ToSlash(data), "Receiver": receiver,
	}); err != nil {
		return nil, err
	}
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text.String()), map[string]any{"filename": "demo"})
	if err == nil && len(warnings) > 0 {
		err = fmt.Errorf("the demo's Caddyfile: %v", warnings)
	}
	return config, err
}

// demoBaseURL returns the base URL of the demo. A loopback address becomes localhost,
// because browsers make no passkeys for addresses.
func demoBaseURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return "http://" + listen
	}
	return "http://" + net.JoinHostPort("localhost", port)
}

// freeAddresses returns the addresses with free ports in place of port 0. It holds all
// of them until it returns: the kernel may assign a port twice, and Caddy would let the
// site and the admin endpoint share it.
func freeAddresses(addresses ...string) (free []string, err error) {
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		free = append(free, listener.Addr().String())
	}
	return free, nil
}

// provide makes a password, a key and an access token for the demo's user, and gives
// the user money, once. An earlier run may have left the user and keys; the callbacks
// of all keys go to the receiver.
func (d *demoRun) provide(ctx context.Context, callbacks *receiver) error {
	app, err := caddymodule.Active()
	if err != nil {
		return err
	}
	runtime, release, err := app.InForce(ctx)
	if err != nil {
		return err
	}
	defer release()
	_, err = runtime.Directory.CreateUser(ctx, adminapi.Operator, d.User)
	if taken, ok := errors.AsType[*fault.Fault](err); err != nil && (!ok || taken.Code != fault.Conflict) {
		return err
	}
	// The password goes first: a new one ends the access token.
	if err := runtime.Directory.SetPassword(ctx, adminapi.Operator, d.User, d.Password); err != nil {
		return err
	}
	_, secret, err := runtime.Directory.CreateKey(ctx, adminapi.Operator, d.User, identity.KeySpec{Name: "demo", CallbackURL: callbacks.url()})
	if err != nil {
		return err
	}
	token, err := runtime.Directory.MintToken(ctx, adminapi.Operator, d.User)
	if err != nil {
		return err
	}
	d.APIKey, d.AccessToken = secret.Reveal(), token.Reveal()
	account, ok := runtime.Directory.AuthenticateToken(d.AccessToken)
	if !ok {
		return errors.New("the access token is not accepted")
	}
	if err := callbacks.register(ctx, runtime.Directory, account); err != nil {
		return err
	}
	_, err = runtime.Billing.Credit(ctx, adminapi.Operator, d.User, 20*money.Unit, "something to try with", "demo")
	return err
}

// introduction says what there is to try. JSON stands as it is sent.
var introduction = template.Must(template.ParseFS(demoFiles, "demo_introduction.tmpl"))
