package e2e

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
)

// site is what differs between the gateways of the tests: lines of a Caddyfile.
type site struct {
	Global      string // global options
	Log         string // the least level that is logged; all there is by default
	Limits      string // inside the option modelgate, limits
	Money       string // inside the option modelgate: prices, plans, payments; there is a console then
	People      string // inside the option modelgate, beside that; the site has a page then, and is localhost too
	Messages    string // inside the block of modelgate_messages
	Completions string // inside the block of modelgate_completions
	Routes      string // beside the directives of the gateway
	Secure      bool   // people come by https, to a site of its own beside the other
}

// forwarding is the site whose calls all go to the backend, with the operator's
// credential.
func forwarding(b *backend) site {
	proxy := "reverse_proxy " + b.address() + " {\n" + operatorKeys + "\n}"
	return site{Messages: proxy, Completions: proxy}
}

// operatorKeys are the lines that put the operator's credential on a call, in
// both vendors' headers.
const operatorKeys = `
	header_up X-Api-Key {env.OPERATOR_KEY}
	header_up Authorization "Bearer {env.OPERATOR_KEY}"`

// caddyfile is the configuration of every gateway. It logs all there is to log,
// in the format that the documentation asks for.
var caddyfile = template.Must(template.New("Caddyfile").Parse(`{
	admin {{.Admin}}
	persist_config off
	auto_https off
	storage file_system {{.Dir}}/caddy
	servers {
		protocols h1 h2 h2c
	}
	log default {
		output stderr
		level {{or .Site.Log "DEBUG"}}
		format modelgate_redact {
			wrap json
		}
	}
	modelgate {
		storage badger {{.Store}} {
			memory small
		}
		limits {
			detached_per_user 1000
			{{.Site.Limits}}
		}
		{{if .Site.People}}
		base_url {{.Origin}}
		{{else if .Site.Money}}
		base_url http://{{.Address}}
		{{end}}
		{{.Site.Money}}
		{{.Site.People}}
	}
	{{.Site.Global}}
}

{{if .Site.Secure}}
{{.Origin}} {
	log
	tls {{.Dir}}/certificate.pem {{.Dir}}/certificate.pem
	modelgate_console
	header / Content-Type text/html
	respond / "<!doctype html><title>A page beside the console</title>"
}
{{end}}

http://{{.Address}}{{if and .Site.People (not .Site.Secure)}}, {{.Origin}}{{end}} {
	log
	modelgate_health
	{{if or .Site.Money .Site.People}}
	modelgate_console {
		reads_per_minute    1000000
		writes_per_minute   1000000
		pages_per_minute    1000000
		logins_per_minute   1000000
		webhooks_per_minute 1000000
	}
	{{end}}
	{{.Site.Routes}}
	{{if .Site.People}}
	header / Content-Type text/html
	respond / "<!doctype html><title>A page beside the console</title>"
	{{end}}
	modelgate_messages {
		pass_up X-Held X-Talk
		models m-1
		{{.Site.Messages}}
	}
	modelgate_completions {
		pass_up X-Held X-Talk
		models m-1
		{{.Site.Completions}}
	}
}
`))

// A gateway is a Caddy process of its own, on free ports and a fresh store.
type gateway struct {
	t       *testing.T
	Dir     string // all that the process keeps
	Store   string
	Admin   string // address of the admin endpoint
	Address string // of the site
	TLS     string // of the site by https, where there is one
	Site    site
	Key     string // an API key in force

	operatorKey string
	witness     *witness
	process     *process
	backends    []*backend
	secrets     []string // that no log and no file may show
	mu          sync.Mutex
}

// newGateway prepares a gateway that is not started yet. The backends are those
// that its site names; when the test is over, no secret may have got out
// anywhere.
func newGateway(t *testing.T, s site, backends ...*backend) *gateway {
	t.Helper()
	dir := t.TempDir()
	g := &gateway{
		t: t, Dir: dir, Store: filepath.Join(dir, "store"), Site: s,
		Admin: freeAddress(t), Address: freeAddress(t), TLS: freeAddress(t),
		operatorKey: "operator-" + rand.Text(), backends: backends, witness: newWitness(),
	}
	g.secrets = []string{g.operatorKey}
	t.Cleanup(func() {
		if g.process != nil { // the last one, if there were several
			g.process.kill()
			g.checkSecrets()
			g.process.checkLog()
			if t.Failed() {
				t.Logf("log of the gateway:\n%s", g.process.log.tail(20))
			}
		}
	})
	return g
}

// running starts a gateway with a user and a key.
func running(t *testing.T, s site, backends ...*backend) *gateway {
	t.Helper()
	g := newGateway(t, s, backends...)
	g.start()
	g.post("/modelgate/users", map[string]any{"name": "ada"}, nil)
	g.Key = g.newKey("ada").Secret
	return g
}

// start runs the process and waits until it serves.
func (g *gateway) start() {
	g.t.Helper()
	g.writeConfig()
	g.process = g.command("run", "--config", g.file(), "--adapter", "caddyfile")
	g.process.await("serving initial configuration")
}

// command runs Caddy with the arguments, beside whatever runs already.
func (g *gateway) command(args ...string) *process {
	g.t.Helper()
	return launch(g.t, []string{
		"HOME=" + g.Dir, "XDG_DATA_HOME=" + g.Dir, "XDG_CONFIG_HOME=" + g.Dir, "OPERATOR_KEY=" + g.operatorKey,
	}, args...)
}

func (g *gateway) file() string { return filepath.Join(g.Dir, "Caddyfile") }

func (g *gateway) writeConfig() {
	g.t.Helper()
	if err := os.WriteFile(g.file(), g.config(), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) config() []byte {
	var text bytes.Buffer
	if err := caddyfile.Execute(&text, g); err != nil {
		g.t.Fatal(err)
	}
	return text.Bytes()
}

// url is the address of a path of the site.
func (g *gateway) url(path string) string { return "http://" + g.Address + path }

// Origin is the site under the one name without a certificate for which browsers
// have passkeys.
func (g *gateway) Origin() string {
	scheme, address := "http", g.Address
	if g.Site.Secure {
		scheme, address = "https", g.TLS
	}
	_, port, _ := net.SplitHostPort(address)
	return scheme + "://localhost:" + port
}

// reload gives the running process its configuration anew, and waits for the end
// of the admin endpoint before, which closes unread what it accepts at last.
func (g *gateway) reload() error {
	const ended = "stopped previous server"
	before := strings.Count(g.process.log.String(), ended)
	req, err := http.NewRequest(http.MethodPost, "http://"+g.Admin+"/load", bytes.NewReader(g.config()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/caddyfile")
	req.Header.Set("Cache-Control", "must-revalidate") // without it Caddy leaves alone what has not changed
	if _, err = g.admin(req); err == nil && !g.process.log.awaitCount(ended, before+1) {
		err = errors.New("the admin endpoint before does not end")
	}
	return err
}

// issued is a key as the admin endpoint answers it, or a user's access token.
type issued struct {
	ID     string `json:"id"`
	Secret string `json:"api_key"`
	Token  string `json:"access_token"` // of a user
}

// newKey makes a key for a user.
func (g *gateway) newKey(user string) issued {
	g.t.Helper()
	var key issued
	g.post("/modelgate/keys", map[string]any{"user": user}, &key)
	return key
}

// users returns how many users the running process knows.
func (g *gateway) users() int {
	g.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+g.Admin+"/modelgate/users", nil)
	if err != nil {
		g.t.Fatal(err)
	}
	text, err := g.admin(req)
	var list struct{ Items []json.RawMessage }
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return len(list.Items)
}

// post calls an admin route that must succeed.
func (g *gateway) post(path string, in, out any) {
	g.t.Helper()
	if err := g.tryPost(path, in, out); err != nil {
		g.t.Fatal(err)
	}
}

// tryPost calls an admin route. What it returns without an error has been
// acknowledged.
func (g *gateway) tryPost(path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+g.Admin+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := g.admin(req)
	if err != nil {
		return err
	}
	var key issued
	_ = json.Unmarshal(answer, &key) // other answers have no secret
	if secret := cmp.Or(key.Secret, key.Token); secret != "" {
		g.mu.Lock()
		g.secrets = append(g.secrets, secret)
		g.mu.Unlock()
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

func (g *gateway) admin(req *http.Request) ([]byte, error) {
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &refusal{resp.StatusCode, fmt.Sprintf("%s %s: %s: %s", req.Method, req.URL.Path, resp.Status, answer)}
	}
	return answer, err
}

// refusal is an answer that says no. Any other error is of an answer that never
// came.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// ports hands out each port once, from below the range from which systems take
// the ports of outgoing connections, so that none is taken before its process
// listens.
var ports = struct {
	sync.Mutex
	next int
}{next: 20000 + os.Getpid()%8000}

// freeAddress returns an address on which nobody listens. The port of UDP by the
// same number is kept until the test ends: another run of these tests passes it
// over by that, while Caddy would share the port with whoever has it already.
func freeAddress(t *testing.T) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		ports.next++
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.next))
		claim, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		t.Cleanup(func() { claim.Close() })
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
