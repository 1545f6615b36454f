package cli

import (
	"context"
	"crypto/rand"
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
	"github.com/caddy-modelgate/modelgate/internal/money"
)

var demoCommand = command{
	use: "demo", short: "Starts a whole gateway on this machine, with a backend to try and a key", run: runDemo,
	flags: []flag{
		{name: "listen", value: "127.0.0.1:0", help: "Address to serve at; port 0 takes a free one"},
		{name: "data", value: "", help: "Directory to keep everything in (default: a temporary one, removed at the end)"},
	},
}

// demoCaddyfile is the configuration of the demo.
var demoCaddyfile = template.Must(template.New("Caddyfile").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	grace_period 5s
	servers {
		protocols h1
	}
	storage file_system "{{.Data}}/caddy"
	log default {
		output stderr
		level WARN
		format modelgate_redact {
			wrap console
		}
	}
	log calls {
		output stderr
		format console
		include http.handlers.modelgate_messages http.handlers.modelgate_completions http.handlers.modelgate_tasks
	}
	modelgate {
		base_url {{.BaseURL}}
		registration open
		storage badger "{{.Data}}/store" {
			memory small
		}
		price demo-* {
			input 3.00
			output 15.00
			cache_read 0.30
			cache_write 3.75
			context 200000
			max_output 64000
		}
		family E demo-*
		price image-demo-* {
			image 0.02
		}
		price video-demo-* {
			second 0.05
			second audio 0.08
		}
		backend demo {
			models image-demo-* video-demo-*
			adapter demo
		}
		default_model video-demo-1
		callback {
			allow {{.Receiver}}
		}
		plan 1 Starter {
			price 9.90
			quota 12.00
			duration 1 month
		}
		plan 2 "A first look" {
			price 0
			quota 0.50
			duration 7 days
		}
		payment demo
	}
}

{{.Sites}} {
	bind {{.Host}}
	modelgate_health
	modelgate_console
	modelgate_messages {
		models demo-1
		modelgate_demo
	}
	modelgate_completions {
		models demo-1
		modelgate_demo
	}
	modelgate_tasks
}
`))

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
var introduction = template.Must(template.New("introduction").Parse(`modelgate demo

  base URL      {{.BaseURL}}
  user          {{.User}}
  password      {{.Password}}
  API key       {{.APIKey}}
  access token  {{.AccessToken}}
  admin         {{.Admin}}

A message, as JSON:

  curl -s {{.BaseURL}}/v1/messages -H 'x-api-key: {{.APIKey}}' -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' -d '{"model":"demo-1","max_tokens":64,"messages":[{"role":"user","content":"Hello, who is there?"}]}'

A chat, as a stream:

  curl -sN {{.BaseURL}}/v1/chat/completions -H 'authorization: Bearer {{.APIKey}}' -H 'content-type: application/json' -d '{"model":"demo-1","max_tokens":64,"stream":true,"messages":[{"role":"user","content":"Hello, who is there?"}]}'

An image, as modelgate-demo.png in this directory: submit it, wait for it, fetch it:

  task=$(curl -s {{.BaseURL}}/v1/platform/image -H 'authorization: Bearer {{.APIKey}}' -H 'content-type: application/json' -d '{"model":"image-demo-1","prompt":"a lighthouse at dusk","session_context":"my first image"}' | sed 's/.*"task_id":"\([^"]*\)".*/\1/')
{{template "wait" .}}
  curl -s -o modelgate-demo.png "$(sed 's/.*"url":"\([^"]*\)".*/\1/' modelgate-demo.json)"

A video, as modelgate-demo.mp4 in this directory: submit it, wait for it, fetch it:

  task=$(curl -s {{.BaseURL}}/v1/platform/video -H 'authorization: Bearer {{.APIKey}}' -H 'content-type: application/json' -d '{"model":"video-demo-1","prompt":"waves under a lighthouse","output":{"duration":4},"session_context":"my first video"}' | sed 's/.*"task_id":"\([^"]*\)".*/\1/')
{{template "wait" .}}
  curl -s -o modelgate-demo.mp4 "$(sed 's/.*"url":"\([^"]*\)".*/\1/' modelgate-demo.json)"

A log-in, as a browser does it, and what it opens:

  curl -s -c modelgate-demo.cookies {{.BaseURL}}/api/user/login -H 'content-type: application/json' -d '{"username":"{{.User}}","password":"{{.Password}}"}'
  curl -s -b modelgate-demo.cookies {{.BaseURL}}/api/user/self

What the calls have cost:

  curl -s {{.BaseURL}}/api/log/self -H 'authorization: Bearer {{.AccessToken}}'

More money; open the pay_url of the answer in a browser:

  curl -s {{.BaseURL}}/api/user/demo/pay -H 'authorization: Bearer {{.AccessToken}}' -X POST -H 'content-type: application/json' -d '{"amount":"10.00"}'

A plan, paid from the wallet, once for its key:

  curl -s {{.BaseURL}}/api/subscription/wallet/pay -H 'authorization: Bearer {{.AccessToken}}' -X POST -H 'content-type: application/json' -d '{"plan_id":1,"idempotency_key":"first"}'

The operator's side, from another terminal:

  go run ./cmd/caddy modelgate wallet show {{.User}} --address {{.Admin}}
  go run ./cmd/caddy modelgate verify --address {{.Admin}}

Each call and each callback is a line below. Stop with Ctrl-C.

{{define "wait"}}  until curl -s "{{.BaseURL}}/v1/platform/tasks/$task?wait=60" -H 'authorization: Bearer {{.APIKey}}' | tee modelgate-demo.json | grep completed_at; do sleep 1; done{{end}}`))
