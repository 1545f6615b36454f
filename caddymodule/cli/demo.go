package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

func demoCommand() *cobra.Command {
	cmd := command("demo", "Starts a whole gateway on this machine, with a backend to try and a key", runDemo)
	cmd.Flags().String("listen", "127.0.0.1:0", "Address to serve at; port 0 takes a free one")
	cmd.Flags().String("data", "", "Directory to keep everything in (default: a temporary one, removed at the end)")
	return cmd
}

// demoCaddyfile is what the demo runs. The key never stands in a log.
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

// demoRun is what the demo says of itself, as --json prints it.
type demoRun struct {
	BaseURL     string `json:"base_url"`
	Admin       string `json:"admin"` // for --address
	User        string `json:"user"`
	Password    string `json:"password"`
	APIKey      string `json:"api_key"`
	AccessToken string `json:"access_token"`
}

func runDemo(cmd *cobra.Command, _ []string) error {
	caddy.TrapSignals()
	data, _ := cmd.Flags().GetString("data")
	remove := func() {}
	if data == "" {
		temp, err := os.MkdirTemp("", "modelgate-demo-")
		if err != nil {
			return err
		}
		data = temp
		remove = func() { _ = os.RemoveAll(temp) }
		caddy.OnExit(func(context.Context) { remove() })
	}
	run, err := startDemo(cmd, data)
	if err != nil {
		remove()
		return err
	}
	if err := printed(cmd, run, func(w io.Writer) { run.introduce(w) }); err != nil {
		return err
	}
	select {} // until a signal ends the process
}

// startDemo runs the Caddyfile and makes a user with a key, an access token and
// some money. The callbacks of the key go to a receiver, which writes its lines
// beside those of the calls.
func startDemo(cmd *cobra.Command, data string) (demoRun, error) {
	data, err := filepath.Abs(data)
	if err != nil {
		return demoRun{}, err
	}
	listen, _ := cmd.Flags().GetString("listen")
	free, err := freeAddresses(listen, "127.0.0.1:0")
	if err != nil {
		return demoRun{}, fmt.Errorf("--listen: %w", err)
	}
	listen, admin := free[0], free[1]
	callbacks, err := newReceiver(cmd.ErrOrStderr())
	if err != nil {
		return demoRun{}, err
	}
	config, err := adaptDemo(listen, admin, data, callbacks.address())
	if err != nil {
		return demoRun{}, err
	}
	if err := caddy.Load(config, true); err != nil {
		return demoRun{}, err
	}
	run := demoRun{BaseURL: demoBaseURL(listen), Admin: admin, User: "demo", Password: rand.Text()}
	return run, run.provide(cmd.Context(), callbacks)
}

func adaptDemo(listen, admin, data, receiver string) ([]byte, error) {
	// Without its host the site would listen at all addresses of the machine.
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	base := demoBaseURL(listen)
	sites := "http://" + listen
	if base != sites {
		sites += ", " + base // who uses the address is served, too
	}
	var caddyfile strings.Builder
	err = demoCaddyfile.Execute(&caddyfile, map[string]string{
		"Listen": listen, "Host": host, "BaseURL": base, "Sites": sites, "Admin": admin, "Data": filepath.ToSlash(data), "Receiver": receiver,
	})
	if err != nil {
		return nil, err
	}
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile.String()), map[string]any{"filename": "demo"})
	if err == nil && len(warnings) > 0 {
		err = fmt.Errorf("the demo's Caddyfile: %v", warnings)
	}
	return config, err
}

// demoBaseURL is where people find the demo. Of this machine they are told its
// name: for an address browsers make no passkeys.
func demoBaseURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return "http://" + listen
	}
	return "http://" + net.JoinHostPort("localhost", port)
}

// freeAddresses returns the addresses with ports that are free at this moment in
// place of port 0. All are taken before any is given back: the kernel may hand out
// one port twice, and Caddy would let the site and the admin endpoint share it.
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

// demoMoney is what the demo's user has to begin with.
const demoMoney = 20 * money.Unit

// provide makes a password, a key and an access token for the demo's user, who
// may be there from an earlier run, and gives him money, once. The callbacks of
// all his keys go to the receiver: those of tasks that an earlier run has left,
// too.
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
	var taken *fault.Fault
	if _, err := runtime.Directory.CreateUser(ctx, adminapi.Operator, d.User); err != nil && (!errors.As(err, &taken) || taken.Code != fault.Conflict) {
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
		return errors.New("the access token does not let in")
	}
	if err := callbacks.serve(ctx, runtime.Directory, account); err != nil {
		return err
	}
	_, err = runtime.Billing.Credit(ctx, adminapi.Operator, d.User, demoMoney, "something to try with", "demo")
	return err
}

// introduce tells a person what there is to try.
func (d demoRun) introduce(w io.Writer) {
	quoted := func(v any) string {
		body, _ := json.Marshal(v)
		return string(body)
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	type call struct {
		Model     string    `json:"model"`
		MaxTokens int       `json:"max_tokens"`
		Stream    bool      `json:"stream,omitempty"`
		Messages  []message `json:"messages"`
	}
	hello := []message{{"user", "Hello, who is there?"}}
	fmt.Fprintf(w, "modelgate demo\n\n  base URL      %s\n  user          %s\n  password      %s\n  API key       %s\n  access token  %s\n  admin         %s\n",
		d.BaseURL, d.User, d.Password, d.APIKey, d.AccessToken, d.Admin)
	fmt.Fprintf(w, "\nA message, as JSON:\n\n  curl -s %s/v1/messages -H 'x-api-key: %s' -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' -d '%s'\n",
		d.BaseURL, d.APIKey, quoted(call{"demo-1", 64, false, hello}))
	fmt.Fprintf(w, "\nA chat, as a stream:\n\n  curl -sN %s/v1/chat/completions -H 'authorization: Bearer %s' -H 'content-type: application/json' -d '%s'\n",
		d.BaseURL, d.APIKey, quoted(call{"demo-1", 64, true, hello}))
	d.introduceTasks(w)
	console := func(what, method, path string, body any) {
		fmt.Fprintf(w, "\n%s:\n\n  curl -s %s%s -H 'authorization: Bearer %s'", what, d.BaseURL, path, d.AccessToken)
		if body != nil {
			fmt.Fprintf(w, " -X %s -H 'content-type: application/json' -d '%s'", method, quoted(body))
		}
		fmt.Fprintln(w)
	}
	type order struct {
		Amount money.Amount `json:"amount"`
	}
	type purchase struct {
		Plan int    `json:"plan_id"`
		Key  string `json:"idempotency_key"`
	}
	type login struct {
		Name     string `json:"username"`
		Password string `json:"password"`
	}
	fmt.Fprintf(w, "\nA log-in, as a browser does it, and what it opens:\n\n  curl -s -c modelgate-demo.cookies %s/api/user/login -H 'content-type: application/json' -d '%s'\n  curl -s -b modelgate-demo.cookies %s/api/user/self\n",
		d.BaseURL, quoted(login{d.User, d.Password}), d.BaseURL)
	console("What the calls have cost", http.MethodGet, "/api/log/self", nil)
	console("More money; open the pay_url of the answer in a browser", http.MethodPost, "/api/user/demo/pay", order{10 * money.Unit})
	console("A plan, paid from the wallet, once for its key", http.MethodPost, "/api/subscription/wallet/pay", purchase{1, "first"})
	fmt.Fprintf(w, "\nThe operator's side, from another terminal:\n\n  go run ./cmd/caddy modelgate wallet show %s --address %s\n  go run ./cmd/caddy modelgate verify --address %s\n\nEach call and each callback is a line below. Stop with Ctrl-C.\n\n", d.User, d.Admin, d.Admin)
}
