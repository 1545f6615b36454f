// Package demo runs a complete gateway on this machine, with a demonstration backend, for people
// who try modelgate. [Start] loads a configuration into this process and creates a user with a key
// and money. Package cli has the command.
package demo

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/caddymodule/starter"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

//go:embed caddyfile.tmpl introduction.tmpl
var files embed.FS

// The configuration, and the text with commands to try.
var (
	configuration = template.Must(template.ParseFS(files, "caddyfile.tmpl"))
	introduction  = template.Must(template.ParseFS(files, "introduction.tmpl"))
)

// Run has the address and the credentials of a running demo, as --json prints them.
type Run struct {
	BaseURL     string `json:"base_url"`
	Admin       string `json:"admin"` // for --address
	User        string `json:"user"`
	Password    string `json:"password"`
	APIKey      string `json:"api_key"`
	AccessToken string `json:"access_token"`
}

// Start runs the Caddyfile and creates a user with a key, an access token and some money.
// A receiver gets the callbacks of the key and writes a line for each to lines. The log
// of calls and tasks goes to standard error, with colors if color is set.
func Start(ctx context.Context, listen, data string, lines io.Writer, color bool) (*Run, error) {
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
	config, err := adapt(free[0], free[1], data, callbacks.address(), color)
	if err != nil {
		return nil, err
	}
	if err := caddy.Load(config, true); err != nil {
		return nil, err
	}
	run := &Run{BaseURL: baseURL(free[0]), Admin: free[1], User: "demo", Password: rand.Text()}
	return run, run.provide(ctx, callbacks)
}

func adapt(listen, admin, data, receiver string, color bool) ([]byte, error) {
	// Without the host, the site would listen at all addresses of the machine.
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	base, sites := baseURL(listen), "http://"+listen
	if base != sites {
		sites += ", " + base // serve both the address and the name
	}
	var text strings.Builder
	if err := configuration.Execute(&text, map[string]any{
		"Host": host, "Port": port, "BaseURL": base, "Sites": sites, "Admin": admin, "Data": filepath.ToSlash(data), "Receiver": receiver, "Color": color,
		"Loopback": starter.IsLoopback(host), // callers from other machines must not reach services of this machine by callbacks
	}); err != nil {
		return nil, err
	}
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text.String()), map[string]any{"filename": "demo"})
	if err == nil && len(warnings) > 0 {
		err = fmt.Errorf("the demo's Caddyfile: %v", warnings)
	}
	return config, err
}

// baseURL returns the base URL of the demo. A loopback address becomes localhost,
// because browsers make no passkeys for addresses.
func baseURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return "http://" + listen
	}
	return "http://" + net.JoinHostPort("localhost", port)
}

// freeAddresses returns the addresses with free ports in place of port 0. It keeps all
// listeners open until it returns. The kernel may assign a port twice, and Caddy would let
// the site and the admin endpoint share it.
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

// provide creates a password, a key and an access token for the demo's user, and adds
// money, once. The user and keys of an earlier run may exist; the receiver gets the
// callbacks of all keys.
func (d *Run) provide(ctx context.Context, callbacks *receiver) error {
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
	// The password must be first, because a new password ends the access token.
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
	_, err = runtime.Billing.Credit(ctx, adminapi.Operator, d.User, 20*money.Unit, "for the demo", "demo")
	return err
}

// Introduce writes commands to try. Headings are bold if color is set. program is the shell
// command that calls this program.
func (d *Run) Introduce(w io.Writer, program string, color bool) error {
	var text strings.Builder
	if err := introduction.Execute(&text, struct {
		*Run
		Program string
	}{d, program}); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if color && (strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "// ") || line == "modelgate demo\n") {
			line = bold + strings.TrimSuffix(line, "\n") + plain + "\n"
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}
