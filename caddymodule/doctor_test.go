package caddymodule_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const filtered = `
	log default {
		format filter {
			request>headers>X-Api-Key delete
			request>uri query {
				delete key
			}
		}
	}
`

func TestTheDoctorNamesWhatIsDangerousOrBroken(t *testing.T) {
	t.Parallel()
	site := func(inner string) string {
		return "http://:8080 {\n modelgate_messages {\n" + inner + "\n}\n}\n"
	}
	proxy := func(inner string) string { return site("reverse_proxy 127.0.0.1:1 {\n" + inner + "\n}") }
	for name, c := range map[string]struct {
		caddyfile string
		findings  []string // "level where: words of what", in order
	}{
		"all is well":              {"{\n" + filtered + "}\n" + site("reverse_proxy 127.0.0.1:1"), nil},
		"logs in clear":            {site("reverse_proxy 127.0.0.1:1"), []string{"error logging.logs.default: X-Api-Key in clear", "warning logging.logs.default: query strings"}},
		"a log to nowhere":         {"{\n log {\n output discard\n}\n}\n" + site("respond ok"), nil},
		"a log of its own calls":   {"{\n" + filtered + "log calls {\n include http.handlers.modelgate_messages\n}\n}\n" + site("respond ok"), nil},
		"an access log in clear":   {"{\n" + filtered + "log access {\n include http.log.access\n}\n}\n" + site("respond ok"), []string{"error logging.logs.access: X-Api-Key in clear", "warning logging.logs.access: query strings"}},
		"an open admin endpoint":   {"{\n" + filtered + "admin :2019\n}\n" + site("respond ok"), []string{"error admin.listen: whoever reaches it"}},
		"a named admin endpoint":   {"{\n" + filtered + "admin 192.0.2.1:2019\n}\n" + site("respond ok"), []string{"error admin.listen: whoever reaches it"}},
		"a closed admin endpoint":  {"{\n" + filtered + "admin off\n}\n" + site("respond ok"), nil},
		"admin over a socket":      {"{\n" + filtered + "admin unix//run/caddy.sock\n}\n" + site("respond ok"), nil},
		"admin on the loopback":    {"{\n" + filtered + "admin [::1]:2019\n}\n" + site("respond ok"), nil},
		"retries without buffers":  {"{\n" + filtered + "}\n" + proxy("lb_retries 2"), []string{"error apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0]: without request_buffers"}},
		"try_duration":             {"{\n" + filtered + "}\n" + proxy("lb_try_duration 5s"), []string{"error apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0]: without request_buffers"}},
		"retries with buffers":     {"{\n" + filtered + "}\n" + proxy("lb_retries 2\nrequest_buffers 32MiB"), nil},
		"a gate within a gate":     {"{\n" + filtered + "}\n" + site("modelgate_auth"), []string{"error apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0]: the caller's key is gone"}},
		"credentials in the log":   {"{\n" + filtered + "servers {\n log_credentials\n}\n}\n" + site("respond ok"), []string{"error apps.http.servers.srv0.logs.should_log_credentials: keys that callers send"}},
		"response buffers":         {"{\n" + filtered + "}\n" + proxy("response_buffers 1MiB"), []string{"error apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0]: holds streams back"}},
		"within a handle":          {"{\n" + filtered + "}\n" + site("handle {\n reverse_proxy 127.0.0.1:1 {\n response_buffers 1MiB\n}\n}"), []string{"error apps.http.servers.srv0.routes[0].handle[0].routes[0].handle[0].routes[0].handle[0]: holds streams back"}},
		"money without paying":     {"{\n" + filtered + "modelgate {\n base_url http://x\n price * {\n request 1\n }\n payment demo\n}\n}\n" + site("respond ok"), []string{"warning apps.modelgate.payments: without paying"}},
		"plans and nothing to pay": {"{\n" + filtered + "modelgate {\n plan 1 A {\n price 1\n quota 1\n duration 1 month\n }\n}\n}\n" + site("respond ok"), []string{"warning apps.modelgate: every call is free"}},
		"signatures in the log":    {"{\n" + filtered + "modelgate {\n base_url http://x\n price * {\n request 1\n }\n payment stripe {\n secret_key sk_test_x\n webhook_secret whsec_x\n }\n}\n}\n" + site("respond ok"), []string{"error logging.logs.default: Stripe-Signature in clear"}},
		"a proxy that is not ours": {"{\n" + filtered + "}\nhttp://:8080 {\n reverse_proxy 127.0.0.1:1 {\n response_buffers 1MiB\n}\n}", nil},
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
				t.Fatalf("ended with %d: %s%s", code, stdout, stderr)
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
				t.Errorf("ended with %d, want %d", code, failed)
			}
		})
	}
}

func TestTheDoctorLooksAtTheRunningConfiguration(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	code, stdout, _ := run(t, g, "", "doctor")
	if code != 1 || !strings.Contains(stdout, "logging.logs.default") || !strings.Contains(stdout, "→") {
		t.Errorf("ended with %d: %s", code, stdout)
	}
}
