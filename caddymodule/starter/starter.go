// Package starter creates the first configuration of a gateway from the choices of an operator:
// a Caddyfile, and the environment with its secrets.
//
// [Choice] has the choices of the operator, and [Choice.Render] returns the texts. The command
// init of package cli checks and writes them.
package starter

import (
	"cmp"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode"
)

//go:embed caddyfile.tmpl
var text string

var caddyfile = template.Must(template.New("Caddyfile").Funcs(template.FuncMap{"names": names, "unit": unit}).Parse(text))

// Choice has the backends that an operator wants to use, and the address of the gateway.
type Choice struct {
	Domain    string // of the site: a name, or an address with http:// or https://
	Data      string // directory of the store
	Anthropic bool
	OpenAI    bool
	Messages  Server // with the interface of Anthropic; without an address: Anthropic
	VLLM      Server
	Ollama    Server
	Tasks     Server // with OpenAI's former interface of videos
}

// Server is a server of the operator.
type Server struct {
	Address string // empty: no such server
	Models  []string
	hasKey  bool // the environment has a key for it
}

// Names returns the models as the arguments of a directive.
func (s Server) Names() string { return names(s.Models) }

// URL returns the address with a scheme, and without its path.
func (s Server) URL() string { return strings.TrimSuffix(s.base(), s.Path()) }

// Plain reports whether the server is reached without TLS. The transport of the gateway then takes
// its short way.
func (s Server) Plain() bool { return !strings.HasPrefix(s.base(), "https://") }

// Path returns the path of the address without /v1, which clients add.
func (s Server) Path() string {
	u, err := url.Parse(s.base())
	if err != nil {
		return ""
	}
	return u.Path
}

func (s Server) base() string {
	address := strings.TrimSuffix(strings.TrimSuffix(s.Address, "/"), "/v1")
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return address
}

// Keyed reports whether the gateway sends a key to the server. Over http the key is in clear, so
// only a key that the operator has set is sent there.
func (s Server) Keyed() bool { return s.hasKey || strings.HasPrefix(s.Address, "https://") }

// Price is the price of a model, per million tokens.
type Price struct {
	Model                                              string
	Input, Output, CacheRead, CacheWrite, CacheWrite1h string
	Reasoning                                          string // set if the model reasons by default, or may
	Context, MaxOutput                                 int
	Guessed                                            bool   // Context and MaxOutput are guesses
	Above                                              *Price // prompts above 200,000 tokens
}

// Example prices, from the price lists of the vendors in 2025. A * matches the names with a date, too.
// gpt-5 has no *, because gpt-5* would match gpt-5-pro, which costs more.
var (
	anthropicPrices = []Price{
		{
			Model: "claude-sonnet-4-5*", Input: "3.00", Output: "15.00", CacheRead: "0.30", CacheWrite: "3.75", CacheWrite1h: "6.00", Context: 1_000_000, MaxOutput: 64_000,
			Above: &Price{Input: "6.00", Output: "22.50", CacheRead: "0.60", CacheWrite: "7.50", CacheWrite1h: "12.00"},
		},
		{Model: "claude-haiku-4-5*", Input: "1.00", Output: "5.00", CacheRead: "0.10", CacheWrite: "1.25", CacheWrite1h: "2.00", Context: 200_000, MaxOutput: 64_000},
	}
	openAIPrices = []Price{
		{Model: "gpt-5", Input: "1.25", Output: "10.00", Reasoning: "10.00", CacheRead: "0.125", Context: 400_000, MaxOutput: 128_000},
		{Model: "gpt-5-mini*", Input: "0.25", Output: "2.00", Reasoning: "2.00", CacheRead: "0.025", Context: 400_000, MaxOutput: 128_000},
	}
)

// AnthropicModels returns the names of the models of Anthropic.
func (*Choice) AnthropicModels() []string { return modelsOf(anthropicPrices) }

// OpenAIModels returns the patterns of the models of OpenAI.
func (*Choice) OpenAIModels() (patterns []string) {
	for _, price := range openAIPrices {
		patterns = append(patterns, price.Model)
	}
	return patterns
}

// modelsOf returns the names without a date, for lists.
func modelsOf(prices []Price) (models []string) {
	for _, price := range prices {
		models = append(models, strings.TrimSuffix(price.Model, "*"))
	}
	return models
}

// Completions returns the models of the dialect openai.
func (c *Choice) Completions() (models []string) {
	if c.OpenAI {
		models = modelsOf(openAIPrices)
	}
	return slices.Concat(models, c.VLLM.Models, c.Ollama.Models)
}

// FirstCall returns a shell command that makes a call to the first model.
func (c *Choice) FirstCall(key string) string {
	curl := func(path, model, more string) string {
		return fmt.Sprintf("curl %s%s -H 'authorization: Bearer %s' \\\n  -d '{\"model\": %q, %s}'", c.BaseURL(), path, key, model, more)
	}
	const hello = `"max_tokens": 64,
    "messages": [{"role": "user", "content": "Hello"}]`
	switch completions := c.Completions(); {
	case c.Anthropic:
		return curl("/v1/messages \\\n  -H 'anthropic-version: 2023-06-01'", c.AnthropicModels()[0], hello)
	case len(completions) > 0:
		return curl("/v1/chat/completions", completions[0], hello)
	}
	kind, _, _ := strings.Cut(c.Tasks.Models[0], "-")
	return curl("/v1/platform/"+kind, c.Tasks.Models[0], `"prompt": "waves"`)
}

// Prices returns the prices of all models of calls.
func (c *Choice) Prices() (prices []Price) {
	if c.Anthropic {
		prices = append(prices, anthropicPrices...)
	}
	if c.OpenAI {
		prices = append(prices, openAIPrices...)
	}
	for _, model := range slices.Concat(c.VLLM.Models, c.Ollama.Models) {
		prices = append(prices, Price{Model: model, Input: "0.20", Output: "0.60", Reasoning: "0.60", Context: 32_000, MaxOutput: 8_000, Guessed: true})
	}
	return prices
}

// Site returns the address of the site in the Caddyfile.
func (c *Choice) Site() string { return strings.TrimPrefix(c.BaseURL(), "https://") }

// BaseURL returns the address of the site for browsers.
func (c *Choice) BaseURL() string {
	if strings.Contains(c.Domain, "://") {
		return strings.TrimSuffix(c.Domain, "/")
	}
	return "https://" + c.Domain
}

// Others returns the address of all other hosts at the port of the site. It returns an
// empty string for a site with TLS, because Caddy redirects or refuses other hosts there.
func (c *Choice) Others() string {
	u, err := url.Parse(c.BaseURL())
	if err != nil || u.Scheme != "http" {
		return ""
	}
	return "http://:" + cmp.Or(u.Port(), "80")
}

// Bind returns the host to listen at if only this machine can reach it, else an empty
// string.
func (c *Choice) Bind() string {
	u, err := url.Parse(c.BaseURL())
	switch {
	case err != nil || !IsLoopback(u.Hostname()):
		return ""
	case net.ParseIP(u.Hostname()) == nil:
		return "localhost" // some systems do not resolve names below it
	}
	return u.Hostname()
}

// IsLoopback reports whether only this machine can reach a host: a loopback address, localhost, or
// a name below it (RFC 6761, section 6.3).
func IsLoopback(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host).IsLoopback()
}

// The allowed forms of values in the Caddyfile. They prevent a value from becoming several words.
var (
	addressForm = regexp.MustCompile(`^(https?://)?[A-Za-z0-9.\-\[\]:]+(/v1)?/?$`)
	pathForm    = regexp.MustCompile(`^https?://[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~-]+)*/?$`)
	modelForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)
	taskForm    = regexp.MustCompile(`^(video|image)-`)
)

// notQuotable reports whether a Caddyfile cannot contain a path in quotation marks or in a comment.
func notQuotable(path string) bool {
	return strings.ContainsAny(path, "\"{}") || strings.ContainsFunc(path, unicode.IsControl) || strings.HasSuffix(path, `\`)
}

// check returns an error if no configuration is possible for the choice.
func (c *Choice) check() error {
	if !c.Anthropic && !c.OpenAI && c.VLLM.Address+c.Ollama.Address+c.Tasks.Address == "" {
		return fmt.Errorf("no backend is named; allowed: --anthropic, --openai, --vllm, --ollama or --tasks")
	}
	if !addressForm.MatchString(c.Domain) {
		return fmt.Errorf("--domain %q is not an address such as ai.example.com or http://localhost:8080", c.Domain)
	}
	if notQuotable(c.Data) {
		return fmt.Errorf("--data %q must not have quotation marks, braces, control characters, or a backslash at its end", c.Data)
	}
	for _, named := range []struct {
		flag   string
		server Server
	}{{"vllm", c.VLLM}, {"ollama", c.Ollama}, {"tasks", c.Tasks}, {"anthropic-url", c.Messages}} {
		flag, server := named.flag, named.server
		if (server.Address == "") != (len(server.Models) == 0) && flag != "anthropic-url" {
			return fmt.Errorf("--%s and --%s-models are required together: the address of a server and its models", flag, flag)
		}
		if err := checkAddress(flag, server.Address); err != nil {
			return err
		}
		for _, model := range server.Models {
			if !modelForm.MatchString(model) {
				return fmt.Errorf("--%s-models: %q is not a model name", flag, model)
			}
			if flag == "tasks" && !taskForm.MatchString(model) {
				return fmt.Errorf("--tasks-models: %q does not begin with video- or image-, as models of tasks do", model)
			}
		}
	}
	return nil
}

// checkAddress returns an error if the address of a server has a form that is not allowed.
func checkAddress(flag, address string) error {
	if address == "" || addressForm.MatchString(address) || flag != "tasks" && pathForm.MatchString(address) {
		return nil
	}
	reason := "only letters, digits and . - : [ ] are allowed"
	scheme, rest, found := strings.Cut(address, "://")
	switch {
	case found && scheme != "http" && scheme != "https":
		reason = "the scheme is http or https"
	case strings.ContainsAny(address, "?#"):
		reason = "it has a query or a fragment"
	case strings.Contains(address, "@"):
		reason = "it has a user; set the key in the environment"
	case !found && strings.Contains(address, "/"):
		reason = "an address with a path needs http:// or https://"
	case flag == "tasks" && strings.Contains(rest, "/"):
		reason = "it has a path other than /v1"
	}
	return fmt.Errorf("--%s %q is not an address such as 10.0.0.5:8000 or https://ai.example.com/v1: %s", flag, address, reason)
}

// Unset is the value of a variable that the operator must set in the environment.
const Unset = "replace-me"

// Render returns the Caddyfile, the environment with the secrets, and the variables that are
// still [Unset]. The keys of vendors come from getenv. file and environment are the names of
// the files.
func (c *Choice) Render(file, environment string, getenv func(string) string) (config, secrets string, missing []string, err error) {
	if err := c.check(); err != nil {
		return "", "", nil, err
	}
	if notQuotable(file) || notQuotable(environment) {
		return "", "", nil, fmt.Errorf("%q must not have quotation marks, braces or control characters", filepath.Dir(file))
	}
	// Not for the other servers: their variables are those of clients of a vendor, and the operator
	// may have set them for that.
	with := *c
	with.VLLM.hasKey = c.VLLM.Address != "" && getenv("VLLM_API_KEY") != ""
	c = &with
	var out strings.Builder
	if err := caddyfile.Execute(&out, struct {
		*Choice
		File, Environment, Data string
	}{c, file, environment, filepath.ToSlash(c.Data)}); err != nil {
		return "", "", nil, err
	}
	master := make([]byte, 32)
	_, _ = rand.Read(master)
	lines := []string{
		"# The master key. It opens the store: keep a copy in another place.",
		"MODELGATE_SECRET=" + hex.EncodeToString(master),
	}
	for _, key := range []struct {
		wanted bool
		name   string
	}{{c.Anthropic && c.AnthropicServer().Keyed(), "ANTHROPIC_API_KEY"}, {c.OpenAI, "OPENAI_API_KEY"}, {c.VLLM.Keyed(), "VLLM_API_KEY"}, {c.Ollama.Keyed(), "OLLAMA_API_KEY"}, {c.Tasks.Address != "", "TASKS_API_KEY"}} {
		if !key.wanted {
			continue
		}
		value := getenv(key.name)
		if value == "" || value == Unset || strings.ContainsAny(value, `"'\#`) || strings.ContainsFunc(value, notGraphic) {
			value = Unset
			missing = append(missing, key.name)
		}
		lines = append(lines, key.name+"="+value)
	}
	return out.String(), strings.Join(lines, "\n") + "\n", missing, nil
}

// notGraphic reports whether a character is not a visible ASCII character.
func notGraphic(c rune) bool { return c <= ' ' || c > '~' }

// AnthropicServer returns the server of the dialect anthropic.
func (c *Choice) AnthropicServer() Server {
	return Server{Address: cmp.Or(c.Messages.Address, "https://api.anthropic.com")}
}

func names(models []string) string { return strings.Join(models, " ") }

// unit returns the price of a model of tasks.
func unit(model string) string {
	if strings.HasPrefix(model, "image-") {
		return "image 0.04"
	}
	return "second 0.10"
}
