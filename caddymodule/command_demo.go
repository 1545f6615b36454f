package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
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
		format filter {
			wrap console
			request>headers>X-Api-Key delete
			request>uri query {
				delete key
			}
		}
	}
	log calls {
		output stderr
		format console
		include http.handlers.modelgate_messages http.handlers.modelgate_completions
	}
	modelgate {
		storage badger "{{.Data}}/store" {
			memory small
		}
	}
}

http://{{.Listen}} {
	modelgate_health
	modelgate_messages {
		models demo-1
		modelgate_demo
	}
	modelgate_completions {
		models demo-1
		modelgate_demo
	}
}
`))

// demoRun is what the demo says of itself, as --json prints it.
type demoRun struct {
	BaseURL string `json:"base_url"`
	Admin   string `json:"admin"` // for --address
	User    string `json:"user"`
	APIKey  string `json:"api_key"`
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

// startDemo runs the Caddyfile and makes a user and a key.
func startDemo(cmd *cobra.Command, data string) (demoRun, error) {
	data, err := filepath.Abs(data)
	if err != nil {
		return demoRun{}, err
	}
	listen, _ := cmd.Flags().GetString("listen")
	if listen, err = freeAddress(listen); err != nil {
		return demoRun{}, fmt.Errorf("--listen: %w", err)
	}
	admin, err := freeAddress("127.0.0.1:0")
	if err != nil {
		return demoRun{}, err
	}
	config, err := adaptDemo(listen, admin, data)
	if err != nil {
		return demoRun{}, err
	}
	if err := caddy.Load(config, true); err != nil {
		return demoRun{}, err
	}
	run := demoRun{BaseURL: "http://" + listen, Admin: admin, User: "demo"}
	run.APIKey, err = demoKey(cmd.Context(), run.User)
	return run, err
}

func adaptDemo(listen, admin, data string) ([]byte, error) {
	var caddyfile strings.Builder
	err := demoCaddyfile.Execute(&caddyfile, map[string]string{
		"Listen": listen, "Admin": admin, "Data": filepath.ToSlash(data),
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

// freeAddress returns address with a port that is free at this moment in place
// of port 0.
func freeAddress(address string) (string, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// demoKey makes a key for the demo's user, who may be there from an earlier run.
func demoKey(ctx context.Context, name string) (string, error) {
	module, err := caddy.ActiveContext().AppIfConfigured(AppID)
	if err != nil {
		return "", err
	}
	node, release, err := module.(*App).Node(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	var taken *fault.Fault
	if _, err := node.Directory.CreateUser(ctx, operator, name); err != nil && (!errors.As(err, &taken) || taken.Code != fault.Conflict) {
		return "", err
	}
	_, secret, err := node.Directory.CreateKey(ctx, operator, name, identity.KeySpec{Name: "demo"})
	return secret.Reveal(), err
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
	fmt.Fprintf(w, "modelgate demo\n\n  base URL  %s\n  API key   %s\n  admin     %s\n", d.BaseURL, d.APIKey, d.Admin)
	fmt.Fprintf(w, "\nA message, as JSON:\n\n  curl -s %s/v1/messages -H 'x-api-key: %s' -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' -d '%s'\n",
		d.BaseURL, d.APIKey, quoted(call{"demo-1", 64, false, hello}))
	fmt.Fprintf(w, "\nA chat, as a stream:\n\n  curl -sN %s/v1/chat/completions -H 'authorization: Bearer %s' -H 'content-type: application/json' -d '%s'\n",
		d.BaseURL, d.APIKey, quoted(call{"demo-1", 64, true, hello}))
	fmt.Fprintf(w, "\nThe operator's side, from another terminal:\n\n  go run ./cmd/caddy modelgate status --address %s\n\nEach call is a line below. Stop with Ctrl-C.\n\n", d.Admin)
}
