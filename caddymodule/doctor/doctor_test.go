package doctor_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestMain(m *testing.M) { gatetest.Main(m) }

const (
	trusted = "servers {\n trusted_proxies static private_ranges\n}\n"
	closed  = "admin unix//run/modelgate/admin.sock|0220\n" + trusted

	filtered = `
	grace_period 5m
	log default {
		` + redacted + `
	}
`
	redacted = "format modelgate_redact {\n wrap json\n }"

	// linksInClear is a filter that hides everything except links to results.
	linksInClear = "format filter {\n request>headers delete\n resp_headers delete\n request>uri regexp ([?].*|sk-.*) x\n }"
)

func TestTheDoctorReportsDangerousAndBrokenConfigurations(t *testing.T) {
	t.Parallel()
	site := func(inner string) string {
		return "http://:8080 {\n modelgate_messages {\n" + inner + "\n}\n}\n"
	}
	// selling returns a gateway with prices. It adds option to the global option and block to
	// the handler.
	selling := func(option, block string) string {
		return "{\n" + closed + filtered + "modelgate {\n price a-* {\n request 1\n}\n" + option + "\n}\n}\n" +
			"http://:8080 {\n modelgate_console\n modelgate_messages {\n" + block + "\nrespond ok\n}\n}\n"
	}
	// only returns selling without the last route of the handler.
	only := func(option, block string) string {
		return strings.Replace(selling(option, block), "\nrespond ok\n}", "\n}", 1)
	}
	// withTasks returns selling with a directive for tasks.
	withTasks := func(option, directive string) string {
		return strings.Replace(selling(option, ""), "modelgate_console", "modelgate_console\n "+directive, 1)
	}
	const (
		secure  = "base_url https://x.example\n"
		backend = "family E x-*\nprice x-* {\n image 1\n}\nbackend a {\n models x-*\n adapter fal\n}"
		stripe  = "payment stripe {\n secret_key {env.NOPE}\n webhook_secret {file./nope}\n}\n"
	)
	proxy := func(inner string) string { return site("reverse_proxy 127.0.0.1:1 {\n" + inner + "\n}") }
	for name, c := range map[string]struct {
		caddyfile string
		findings  []string // "level where: words of what", in order
	}{
		"no finding":              {"{\n" + filtered + "}\n" + site("reverse_proxy 127.0.0.1:1"), nil},
		"logs in clear":           {"{\ngrace_period 5m\n}\n" + site("reverse_proxy 127.0.0.1:1"), []string{"error logging.logs.default: request header X-Api-Key, request header Api-Key, request header X-Auth-Token, request header X-Goog-Api-Key, request header X_Api_Key, request header Stripe-Signature, query parameter key"}},
		"a discarded log":         {"{\n log {\n output discard\n}\n}\n" + site("respond ok"), []string{"warning apps.http.grace_period: without limit"}},
		"a log of calls":          {"{\n" + filtered + "log calls {\n include http.handlers.modelgate_messages\n}\n}\n" + site("respond ok"), nil},
		"an access log in clear":  {"{\n" + filtered + "log access {\n include http.log.access\n}\n}\n" + site("respond ok"), []string{"error logging.logs.access: response header X-Debug-Key, an API key in the response header X-Note"}},
		"an open admin endpoint":  {"{\n" + filtered + "admin :2019\n}\n" + site("respond ok"), []string{"error admin.listen: every client that can connect"}},
		"a named admin endpoint":  {"{\n" + filtered + "admin 192.0.2.1:2019\n}\n" + site("respond ok"), []string{"error admin.listen: every client that can connect"}},
		"a closed admin endpoint": {"{\n" + filtered + "admin off\n}\n" + site("respond ok"), nil},
		"admin over a socket":     {"{\n" + filtered + "admin unix//run/caddy.sock\n}\n" + site("respond ok"), nil},
		"admin on the loopback":   {"{\n" + filtered + "admin [::1]:2019\n}\n" + site("respond ok"), nil},
		"retries":                 {"{\n" + filtered + "}\n" + proxy("lb_retries 2\nlb_try_duration 5s"), nil},
		"a gate within a gate":    {"{\n" + filtered + "}\n" + site("modelgate_auth"), []string{"error apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0]: which removes the caller's key"}},
		"a filter of few headers": {"{\n" + strings.Replace(filtered, redacted, "format filter {\n request>headers>X-Api-Key delete\n request>uri query {\n delete key\n }\n}", 1) + "}\n" + site("respond ok"), []string{"error logging.logs.default: in clear: request header Api-Key, request header X-Auth-Token, request header X-Goog-Api-Key, request header X_Api_Key, request header Stripe-Signature, query parameter Key, query parameter api_key"}},
		"credentials in the log":  {"{\ngrace_period 5m\nservers {\n log_credentials\n}\n}\n" + site("respond ok"), []string{"error logging.logs.default: request header Authorization, request header Cookie"}},
		"credentials are hidden":  {"{\n" + filtered + "servers {\n log_credentials\n}\n}\n" + site("respond ok"), nil},
		"response buffers":        {"{\n" + filtered + "}\n" + proxy("response_buffers 1MiB"), []string{"error apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0]: delays streams"}},
		"a key in a map":          {"{\n" + filtered + "}\n" + site("map {http.auth.user.id} {vendor_key} {\n a {env.A}\n b sk-b\n}\nreverse_proxy 127.0.0.1:1 {\n header_up Authorization \"Bearer {vendor_key}\"\n}"), []string{"warning apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0]: a key is in clear"}},
		"a default key in a map":  {"{\n" + filtered + "}\n" + site("map {http.auth.user.id} {vendor_key} {\n a {env.A}\n default sk-b\n}\nreverse_proxy 127.0.0.1:1 {\n header_up X-Api-Key {vendor_key}\n}"), []string{"warning apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0]: a key is in clear"}},
		"a map without keys":      {"{\n" + filtered + "}\n" + site("map {http.auth.user.id} {vendor_key} {color} {\n a {env.A} red\n default {env.B} blue\n}\nreverse_proxy 127.0.0.1:1 {\n header_up X-Api-Key {vendor_key}\n}"), nil},
		"within a handle":         {"{\n" + filtered + "}\n" + site("handle {\n reverse_proxy 127.0.0.1:1 {\n response_buffers 1MiB\n}\n}"), []string{"error apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0].routes[0].handle[0]: delays streams"}},
		"prices and payments":     {selling(secure+stripe, "models a-1"), nil},
		"demo payments":           {selling("base_url http://localhost:8080\n payment demo", ""), []string{"warning apps.modelgate.payments: without paying"}},
		"plans without prices":    {"{\n" + closed + filtered + "modelgate {\n plan 1 A {\n price 1\n quota 1\n duration 1 month\n }\n}\n}\n" + site("respond ok"), []string{"warning apps.modelgate: every call is free"}},
		"payments, no console":    {strings.Replace(selling(secure+stripe, ""), "modelgate_console", "", 1), []string{"error apps.modelgate.payments: users cannot order"}},
		"secrets in clear": {
			selling(secure+"payment stripe {\n secret_key sk_live_x\n webhook_secret whsec_x\n}\npayment epay {\n url https://x.example\n pid 1\n key hush\n currency USD\n}", ""),
			[]string{
				"warning apps.modelgate.payments[0].secret_key: in clear", "warning apps.modelgate.payments[0].webhook_secret: in clear",
				"warning apps.modelgate.payments[1].key: in clear",
			},
		},
		"a model without a price": {
			selling(secure, "models a-1 b"), []string{"warning apps.http.servers.srv0.routes[0].handle[0].models: b is listed but has no price"},
		},
		"stored objects and no route without a model": {
			"{\n" + closed + filtered + "modelgate {\n state own\n}\n}\nhttp://:8080 {\n modelgate_openai {\n@a modelgate_model a-*\nrespond @a yes\n}\n modelgate_openai {\n state off\n@b modelgate_model b-*\nrespond @b yes\n}\n modelgate_openai {\nrespond yes\n}\n}\n",
			[]string{"warning apps.http.servers.srv0.routes[0].handle[0].routes: state is own, but no route takes POST /v1/conversations"},
		},
		"an alias of a routed model, and a fallback": {
			only(secure+"alias b a-1\nalias c a-2", "fallback a-1 c on dial\n@a modelgate_model b a-2\nrespond @a yes"), nil,
		},
		"an alias and a fallback without a route": {
			only(secure+"alias b a-3\nprice d {\n request 1\n}", "fallback a-1 a-3 d on dial\n@a modelgate_model a-1\nrespond @a yes\n@d modelgate_model d-*\nrespond @d yes"),
			[]string{
				"warning apps.http.servers.srv0.routes[0].handle[0].routes: a route matches d-*, which has no price",
				"warning apps.modelgate.prices[1]: d has a price for calls, but no route matches it",
				"warning apps.http.servers.srv0.routes[0].handle[0].fallbacks[0]: no route of the block matches the fallback a-3",
				"warning apps.http.servers.srv0.routes[0].handle[0].fallbacks[0]: no route of the block matches the fallback d",
				"warning apps.modelgate.aliases.b: no route matches a-3, the model of this alias",
			},
		},
		"a free model":           {selling(secure+"unpriced allow", "models a-1 b"), nil},
		"a console in clear":     {selling("base_url http://x.example", ""), []string{"error apps.modelgate.base_url: not encrypted"}},
		"a local console":        {selling("base_url http://[::1]:8080", ""), nil},
		"a site without a name":  {selling("", ""), []string{"warning apps.modelgate.base_url: in clear"}},
		"passkeys of others":     {selling(secure+"passkey {\n rp_id y.example\n}", ""), []string{"error apps.modelgate.passkey: browsers would refuse it"}},
		"passkeys of the parent": {selling("base_url https://ai.x.example\npasskey {\n rp_id x.example\n}", ""), nil},
		"passkeys elsewhere":     {selling("base_url https://ai.x.example\npasskey {\n rp_id x.example\n origin https://b.x.example\n}", ""), []string{"warning apps.modelgate.passkey.origins: do not work at that address"}},
		"a master key in clear":  {selling(secure+"secret AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", ""), []string{"error apps.modelgate.secrets[0]: in clear"}},
		"a master key elsewhere": {selling(secure+"secret {env.NOPE} {file./nope}", ""), nil},
		"tasks with prices": {
			withTasks(secure+"family E video-a-*\nprice video-a-* {\n second 1\n}\nbackend a {\n models video-a-*\n adapter fal {\n key {env.NOPE}\n model video-a-1 a/b\n}\n}", "modelgate_tasks"), nil,
		},
		"no directive for tasks": {
			withTasks(secure+"family E x-*\nprice x-* {\n image 1\n}\nbackend a {\n models x-*\n adapter fal\n}", ""),
			[]string{"warning apps.modelgate.backends: API keys cannot submit"},
		},
		"no backend for tasks": {withTasks(secure, "modelgate_tasks"), []string{"warning apps.modelgate.backends: every image and every video is refused"}},
		"tasks without a site": {withTasks("family E x-*\nprice x-* {\n image 1\n}\nbackend a {\n models x-*\n adapter fal\n}", "modelgate_tasks"), []string{"warning apps.modelgate.base_url: in clear", "error apps.modelgate.base_url: does not start"}},
		"an admin endpoint on TCP with prices": {
			strings.Replace(selling(secure, ""), "admin unix//run/modelgate/admin.sock|0220", "", 1),
			[]string{"warning admin.listen: listens at localhost:2019; every program on this machine can credit wallets"},
		},
		"no admin endpoint with prices": {strings.Replace(selling(secure, ""), "admin unix//run/modelgate/admin.sock|0220", "admin off", 1), nil},
		"a proxy that is not trusted": {
			strings.Replace(selling(secure, ""), trusted, "", 1),
			[]string{"warning apps.http.servers.srv0.trusted_proxies: apply to the proxy's address"},
		},
		"a host in clear behind a proxy": {
			strings.NewReplacer(trusted, "", "http://:8080", "http://x.example:8080").Replace(selling(secure, "")),
			[]string{"warning apps.http.servers.srv0.trusted_proxies: apply to the proxy's address"},
		},
		"the port of http behind a proxy": {
			strings.NewReplacer(trusted, "", "http://:8080", "http://x.example").Replace(selling(secure, "")),
			[]string{"warning apps.http.servers.srv0.trusted_proxies: apply to the proxy's address"},
		},
		"another port of http behind a proxy": {
			strings.NewReplacer(trusted, "http_port 8081\n", "http://:8080", "http://x.example:8081").Replace(selling(secure, "")),
			[]string{"warning apps.http.servers.srv0.trusted_proxies: apply to the proxy's address"},
		},
		"no proxy at the port of https":  {strings.NewReplacer(trusted, "", "http://:8080", "x.example").Replace(selling(secure, "")), nil},
		"no proxy at another https port": {strings.NewReplacer(trusted, "", "http://:8080", "https://x.example:8443").Replace(selling(secure, "")), nil},
		"no proxy at a certificate":      {strings.NewReplacer(trusted, "", "http://:8080", "https://:8443 {\n tls internal {\n on_demand\n}\n}\nhttps://y.example:8443").Replace(selling(secure, "")), nil},
		"prices only for generations": {
			strings.Replace(withTasks(secure+backend, "modelgate_tasks"), "price a-* {\n request 1\n}", "", 1),
			[]string{"error apps.http.servers.srv0.routes[0].handle[0]: every call of it is refused"},
		},
		"prices only for generations, free calls": {
			strings.Replace(withTasks(secure+backend+"\nunpriced allow", "modelgate_tasks"), "price a-* {\n request 1\n}", "", 1), nil,
		},
		"prices of other models": {
			only(secure+"unpriced refuse", "@b modelgate_model b-*\nrespond @b ok\n@c modelgate_model c\nhandle @c {\n respond yes\n}\nhandle {\n@d modelgate_model d\n respond @d ok\n}\nrequest_header X-Y z"),
			[]string{
				"error apps.http.servers.srv0.routes[0].handle[0]: every call of it is refused",
				"warning apps.modelgate.prices[0]: a-* has a price for calls, but no route matches it",
			},
		},
		"a route without a price": {
			only(secure, "@b modelgate_model b-* a-1\nrespond @b yes"),
			[]string{"warning apps.http.servers.srv0.routes[0].handle[0].routes: a route matches b-*, which has no price"},
		},
		"a price without a route": {
			only(secure+"price c {\n request 1\n}", "models a-2 b\n@a modelgate_model a-*\nrespond @a yes"),
			[]string{
				"warning apps.http.servers.srv0.routes[0].handle[0].models: b is listed but has no price",
				"warning apps.http.servers.srv0.routes[0].handle[0].models: b is listed but no route matches it",
				"warning apps.modelgate.prices[1]: c has a price for calls, but no route matches it",
			},
		},
		"a family and a price without a backend": {
			withTasks(secure+backend+"\nfamily A y-*\nprice video-y-1 {\n second 1\n}", "modelgate_tasks"),
			[]string{
				"warning apps.modelgate.prices[2]: video-y-1 has a price for generations, but no backend runs it",
				"warning apps.modelgate.families[1]: no backend runs y-*",
			},
		},
		"families without any backend": {
			selling(secure+"family A y-*", ""), []string{"warning apps.modelgate.families[0]: no backend runs y-*"},
		},
		"a price per generation": {
			withTasks(secure+"family E x-*\nprice video-x-* {\n request 1\n}\nbackend a {\n models x-*\n adapter fal\n}", "modelgate_tasks"), nil,
		},
		"payments in another currency": {
			selling(secure+"payment epay {\n url https://x.example\n pid 1\n key {env.NOPE}\n}", ""),
			[]string{"error apps.modelgate.payments[0]: the service takes CNY, not USD"},
		},
		"payments in a currency that is not supported": {
			selling(secure+stripe+"currency UGX", ""), []string{"error apps.modelgate.payments[0]: UGX is not supported"},
		},
		"payments in the currency": {
			selling(secure+"currency CNY\npayment epay {\n url https://x.example\n pid 1\n key {env.NOPE}\n}", ""), nil,
		},
		"links of the services": {withTasks(secure+"media off\nfamily E x-*\nprice x-* {\n image 1\n}\nbackend a {\n models x-*\n adapter fal\n}", "modelgate_tasks"), nil},
		"models of no family, without a price": {
			withTasks(secure+"backend a {\n models video-x-1\n adapter fal\n}", "modelgate_tasks"),
			[]string{"warning apps.modelgate.backends[0].models: is in no family", "warning apps.modelgate.backends[0].models: has no price"},
		},
		"tasks with the demo adapter": {
			withTasks(secure+"unpriced allow\nfamily E x-*\nbackend a {\n models video-x-1\n adapter demo\n}", "modelgate_tasks"),
			[]string{"note apps.modelgate.backends[0].adapter: without a model"},
		},
		"secrets of tasks in clear": {
			withTasks(secure+"unpriced allow\nfamily E x-*\nbackend a {\n models x-*\n adapter fal {\n key hush\n}\n}\ncallback {\n url http://x.example\n secret whsec_x\n}\n"+
				"media {\n s3 {\n access_key {env.NOPE}\n secret_key hush\n}\n}", "modelgate_tasks"),
			[]string{
				"warning apps.modelgate.backends[0].adapter.key: in clear", "warning apps.modelgate.callback.url: in clear",
				"warning apps.modelgate.callback.secret: in clear", "warning apps.modelgate.media.s3.secret_key: in clear",
			},
		},
		"callbacks to this machine": {
			withTasks(secure+backend+"\ncallback {\n url http://127.0.0.1:9000\n secret {env.NOPE}\n allow 127.0.0.1:9000\n}", "modelgate_tasks"), nil,
		},
		"links in the log": {
			strings.Replace(withTasks(secure+backend, "modelgate_tasks"), redacted, linksInClear, 1),
			[]string{"warning logging.logs.default: a link opens its result without a key"},
		},
		"links in another log": {
			strings.Replace(withTasks(secure+backend, "modelgate_tasks"), "log default", "log access {\n include http.log.access\n"+linksInClear+"\n}\nlog default", 1),
			[]string{"warning logging.logs.access: a link opens its result without a key"},
		},
		"a log without links":   {strings.Replace(selling(secure, ""), redacted, linksInClear, 1), nil},
		"no grace period":       {strings.Replace(selling(secure, ""), "grace_period 5m", "", 1), []string{"warning apps.http.grace_period: without limit"}},
		"no gateway":            {"{\n log {\n output discard\n}\n}\nhttp://:8080 {\n respond ok\n}\n", nil},
		"another reverse_proxy": {"{\n" + filtered + "}\nhttp://:8080 {\n reverse_proxy 127.0.0.1:1 {\n response_buffers 1MiB\n}\n}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "Caddyfile")
			if err := os.WriteFile(file, []byte(c.caddyfile), 0o600); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "doctor", "--json", "--config", file)
			var got struct {
				Findings []struct{ Level, Where, What, Remedy string }
			}
			if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Findings) != len(c.findings) {
				t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
			}
			failed := 0
			for i, want := range c.findings {
				f := got.Findings[i]
				place, words, _ := strings.Cut(want, ": ")
				if f.Level+" "+f.Where != place || !strings.Contains(f.What, words) || f.Remedy == "" {
					t.Errorf("found %+v, want %s", f, want)
				}
				if f.Level == "error" {
					failed = 1
				}
			}
			if code != failed {
				t.Errorf("exit code %d, want %d", code, failed)
			}
		})
	}
}

func TestTheDoctorChecksTheKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "Caddyfile")
	config := "{\n" + trusted + filtered + "modelgate {\n storage badger " + dir + "/store\n base_url https://x.example\n}\n}\n:8080 {\n modelgate_console\n}\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	runDoctor := func() (int, string) {
		code, stdout, _ := gatetest.Caddy(t, "", "modelgate", "doctor", "--config", file)
		return code, stdout
	}
	if code, found := runDoctor(); code != 0 || !strings.Contains(found, "nothing found") {
		t.Errorf("without a key file: %d %s", code, found)
	}
	key := filepath.Join(dir, "store.key")
	if err := os.WriteFile(key, []byte("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, found := runDoctor(); code != 0 || !strings.Contains(found, "note") || !strings.Contains(found, "keep a copy of the key") || strings.Contains(found, "AAEC") {
		t.Errorf("with a key file: %d %s", code, found)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, found := runDoctor(); code != 1 || !strings.Contains(found, "chmod 600 "+key) {
		t.Errorf("with a key file that others can read: %d %s", code, found)
	}
}

func TestTheDoctorChecksTheRunningConfiguration(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	code, stdout, _ := gatetest.Caddy(t, "", "modelgate", "doctor", "--address", g.AdminAddress)
	if code != 1 || !strings.Contains(stdout, "logging.logs.default") || !strings.Contains(stdout, "→") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
}

// TestTheDoctorAcceptsTheConfigurationsOfTheGuides checks the Caddyfile of the guide on
// production, alone and combined with those of other guides.
func TestTheDoctorAcceptsTheConfigurationsOfTheGuides(t *testing.T) {
	t.Parallel()
	block := func(guide, has string) string {
		text, err := os.ReadFile(filepath.Join("../../docs/guide", guide))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```caddyfile\n")[1:] {
			if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, has) {
				return block
			}
		}
		t.Fatalf("no Caddyfile of %s has %q", guide, has)
		return ""
	}
	serving := block("production.md", "grace_period")
	options, _, _ := strings.Cut(serving, "\tmodelgate {")
	admin := strings.TrimSuffix(block("production.md", "admin unix/"), "}\n")
	selling := strings.Replace(options, "{\n", admin, 1) + strings.TrimPrefix(block("pricing.md", "payment stripe"), "{\n")
	// parts returns the content of the option modelgate and of the site of a block.
	parts := func(block string) (option, site string) {
		_, rest, _ := strings.Cut(block, "\tmodelgate {\n")
		option, rest, _ = strings.Cut(rest, "\n\t}\n}\n")
		_, site, _ = strings.Cut(rest, "ai.example.com {\n")
		return option + "\n", strings.TrimSuffix(site, "}\n")
	}
	store, calls := parts(serving)
	prices, _ := parts(block("pricing.md", "payment stripe"))
	tasks, console := parts(block("generation.md", "adapter replicate"))
	assemble := func(prices string) string {
		return strings.Replace(options, "{\n", admin, 1) + "\tmodelgate {\n" + store + prices + tasks + "\t}\n}\nai.example.com {\n" + calls + console + "}\n"
	}
	for name, c := range map[string]struct{ caddyfile, want string }{
		"serving":              {serving, "nothing found"},
		"selling":              {selling, "nothing found"},
		"all of the guides":    {assemble(strings.Replace(prices, "\t\tbase_url https://ai.example.com\n", "", 1)), "nothing found"},
		"without prices calls": {assemble(""), "every call of it is refused"},
	} {
		caddyfile := c.caddyfile
		file := filepath.Join(t.TempDir(), "Caddyfile")
		if err := os.WriteFile(file, []byte(caddyfile), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "doctor", "--config", file)
		if (code == 0) != (c.want == "nothing found") || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: exit code %d: %s%s\n%s", name, code, stdout, stderr, caddyfile)
		}
	}
}

// TestTheDoctorReportsVariablesThatAreNotSet has an environment file in the folder of the
// Caddyfile.
func TestTheDoctorReportsVariablesThatAreNotSet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "Caddyfile")
	text := "{\n" + filtered + "modelgate {\n base_url http://localhost:8080\n secret {env.DOCTOR_MASTER}\n backend a {\n models video-a-1\n adapter openai {\n url https://x.example\n key {env.DOCTOR_TASKS}\n}\n}\n}\n}\n" +
		"http://localhost:8080 {\n modelgate_tasks\n modelgate_messages {\n reverse_proxy https://a.example {\n header_up X-Api-Key {env.DOCTOR_NONE}\n}\n}\n}\n"
	findings := func() string {
		t.Helper()
		code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "doctor", "--config", file)
		if code != 0 {
			t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
		}
		return stdout
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := findings(); strings.Contains(found, "DOCTOR_") {
		t.Errorf("without an environment file, the doctor prints %s", found)
	}
	if err := os.WriteFile(filepath.Join(dir, "environment"), []byte("# a comment\nDOCTOR_MASTER=x\nDOCTOR_TASKS=replace-me\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := findings()
	for words, want := range map[string]bool{
		"the variable DOCTOR_NONE, which is sent to a.example:443, is empty": true, "DOCTOR_MASTER": false,
		"the variable DOCTOR_TASKS is still replace-me": true, " apps.modelgate.backends[0].adapter.key ": true,
	} {
		if strings.Contains(found, words) != want {
			t.Errorf("contains %q: %t, want %t: %s", words, !want, want, found)
		}
	}
}
