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

// site contains the parts of a Caddyfile that differ between the gateways of
// the tests.
type site struct {
	Global      string // global options
	Storage     string // inside the option modelgate; a store in Store by default
	Log         string // the lowest level that is logged; all levels by default
	Limits      string // inside the option modelgate, limits
	Money       string // inside the option modelgate: prices, plans, payments; enables the console
	People      string // inside the option modelgate; enables the page, and the site is also localhost
	Messages    string // inside the block of modelgate_messages
	Completions string // inside the block of modelgate_openai
	Routes      string // in addition to the directives of the gateway
	Sites       string // in addition to the gateway's
	Secure      bool   // users connect by https to a second site
}

// forwarding returns a site that forwards all calls to the backend with the
// operator's credential.
func forwarding(b *backend) site {
	proxy := "reverse_proxy " + b.address() + " {\n" + operatorKeys + "\n}"
	return site{Messages: proxy, Completions: proxy}
}

// operatorKeys are the lines that add the operator's credential to a call, in
// both vendors' headers.
const operatorKeys = `
	header_up X-Api-Key {env.OPERATOR_KEY}
	header_up Authorization "Bearer {env.OPERATOR_KEY}"`

// caddyfile is the configuration of every gateway. It logs everything, in the
// format that the documentation requires.
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
		{{if .Site.Storage}}
		{{.Site.Storage}}
		{{else}}
		storage badger {{.Store}} {
			memory small
		}
		{{end}}
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
		pass_up X-Held X-Script
		models m-1
		{{.Site.Messages}}
	}
	modelgate_openai {
		pass_up X-Held X-Script
		models m-1
		{{.Site.Completions}}
	}
}

{{.Site.Sites}}
`))

// gateway is a separate Caddy process with free ports and a new store.
type gateway struct {
	t       *testing.T
	Dir     string // contains all files of the process
	Store   string
	Admin   string // address of the admin endpoint
	Address string // of the site
	TLS     string // of the site by https, if there is one
	Site    site
	Key     string // a valid API key

	operatorKey      string
	responseRecorder *responseRecorder
	process          *process
	backends         []*backend
	secrets          []string // must not appear in any log or file
	mu               sync.Mutex
}

// newGateway prepares a gateway and does not start it. backends are those of
// its site. When the test ends, it checks that no secret was revealed.
func newGateway(t *testing.T, s site, backends ...*backend) *gateway {
	t.Helper()
	dir := t.TempDir()
	g := &gateway{
		t: t, Dir: dir, Store: filepath.Join(dir, "store"), Site: s,
		Admin: freeAddress(t), Address: freeAddress(t), TLS: freeAddress(t),
		operatorKey: "operator-" + rand.Text(), backends: backends, responseRecorder: newResponseRecorder(),
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

// start starts the process and waits until it serves.
func (g *gateway) start() {
	g.t.Helper()
	g.writeConfig()
	g.process = g.command("run", "--config", g.file(), "--adapter", "caddyfile")
	g.process.await("serving initial configuration")
}

// command runs Caddy with these arguments in addition to the running process.
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

// url returns the URL of a path of the site.
func (g *gateway) url(path string) string { return "http://" + g.Address + path }

// Origin returns the site's origin with the only name for which browsers allow
// passkeys without a certificate.
func (g *gateway) Origin() string {
	scheme, address := "http", g.Address
	if g.Site.Secure {
		scheme, address = "https", g.TLS
	}
	_, port, _ := net.SplitHostPort(address)
	return scheme + "://localhost:" + port
}

// reload loads the configuration again. Before, it waits until the previous
// admin endpoint has stopped, because that one closes new connections unread.
func (g *gateway) reload() error {
	const ended = "stopped previous server"
	before := strings.Count(g.process.log.String(), ended)
	req, err := http.NewRequest(http.MethodPost, "http://"+g.Admin+"/load", bytes.NewReader(g.config()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/caddyfile")
	req.Header.Set("Cache-Control", "must-revalidate") // without it Caddy ignores an unchanged configuration
	if _, err = g.admin(req); err == nil && !g.process.log.awaitCount(ended, before+1) {
		err = errors.New("the admin endpoint before does not end")
	}
	return err
}

// issued is a key or a user's access token as the admin endpoint returns it.
type issued struct {
	ID     string `json:"id"`
	Secret string `json:"api_key"`
	Token  string `json:"access_token"` // of a user
}

// newKey creates a key for a user.
func (g *gateway) newKey(user string) issued {
	g.t.Helper()
	var key issued
	g.post("/modelgate/keys", map[string]any{"user": user}, &key)
	return key
}

// users returns the number of users, of all pages of their list.
func (g *gateway) users() (count int) {
	g.t.Helper()
	for path := "/modelgate/users?limit=100"; ; {
		req, err := http.NewRequest(http.MethodGet, "http://"+g.Admin+path, nil)
		if err != nil {
			g.t.Fatal(err)
		}
		text, err := g.admin(req)
		var list struct {
			Items []json.RawMessage
			Next  string
		}
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err != nil {
			g.t.Fatal(err)
		}
		if count += len(list.Items); list.Next == "" {
			return count
		}
		path = "/modelgate/users?limit=100&after=" + list.Next
	}
}

// post calls an admin route, which must succeed.
func (g *gateway) post(path string, in, out any) {
	g.t.Helper()
	if err := g.tryPost(path, in, out); err != nil {
		g.t.Fatal(err)
	}
}

// tryPost calls an admin route. If it returns no error, the gateway has
// acknowledged the change.
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
	_ = json.Unmarshal(answer, &key) // other answers contain no secret
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

// refusal is the error of an answer with an error status. Any other error means
// that no answer arrived.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// ports returns each port once, from below the range that systems use for
// outgoing connections, so that no port is taken before its process listens.
var ports = struct {
	sync.Mutex
	next int
}{next: 20000 + os.Getpid()%8000}

// freeAddress returns an unused address. It holds the UDP port of the same
// number until the test ends, so that a concurrent run of these tests skips it.
// Caddy would share the TCP port.
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
