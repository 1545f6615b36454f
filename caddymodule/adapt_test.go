package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestMain(m *testing.M) { gatetest.Main(m) }

var update = flag.Bool("update", false, "write the results into the golden files")

const separator = "----------\n"

// TestAdapt compares the result of each Caddyfile below testdata/adapt with the golden file.
// The result is JSON, or an error with a line if the name begins with "bad".
func TestAdapt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/adapt/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	place := regexp.MustCompile(`Caddyfile:[0-9]+`)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			caddyfile, want, _ := strings.Cut(string(golden), separator)
			adapted, err := gatetest.Adapt(caddyfile)
			var got string
			if err != nil {
				got = err.Error() + "\n"
			} else {
				var indented bytes.Buffer
				if err := json.Indent(&indented, adapted, "", "\t"); err != nil {
					t.Fatal(err)
				}
				got = indented.String() + "\n"
			}
			if bad := strings.HasPrefix(name, "bad_"); bad != (err != nil) {
				t.Errorf("got %v", err)
			} else if bad && !place.MatchString(got) {
				t.Errorf("the error names no line: %s", got)
			}
			if *update {
				if err := os.WriteFile(file, []byte(caddyfile+separator+got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestABadConfigurationDoesNotStart covers errors that only provisioning finds.
func TestABadConfigurationDoesNotStart(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	for name, c := range map[string]struct{ app, site, want string }{
		"a known header":             {"version_header x-api-key", "", "has another meaning"},
		"a header without -version":  {"version_header x-thing", "", "must end in -version"},
		"an invalid header name":     {`version_header "a version"`, "", "letters, digits"},
		"too little memory":          {"limits {\n body_memory 1MiB\n}", "", "at least 64 MiB"},
		"idle above lifetime":        {"session {\n idle 31d\n}", "", "lifetime from idle"},
		"too long a session":         {"session {\n lifetime 500d\n}", "", "to 9600h"},
		"too short an idle":          {"session {\n idle 1s\n}", "", "idle from 1m"},
		"too short a step-up":        {"verification {\n lifetime 1s\n}", "", "allowed: 30s to 1h"},
		"too long a step-up":         {"verification {\n lifetime 2h\n}", "", "allowed: 30s to 1h"},
		"passkeys of another site":   {"base_url https://a.example\npasskey {\n rp_id b.example\n}", "", "browsers would refuse it"},
		"passkeys of a similar name": {"base_url https://a.b.example\npasskey {\n rp_id ab.example\n origin https://xab.example\n}", "", "browsers would refuse it"},
		"passkeys without an origin": {"passkey {\n rp_id b.example\n}", "", "origin is missing"},
		"passkeys for an address":    {"base_url http://127.0.0.1:8080\npasskey {\n rp_id localhost\n}", "", "only for https and for http://localhost"},
		"mails without base_url":     {"mail {\n smtp a.example:25\n from a@b.example\n}", "", "base_url is missing"},
		"mails without a server":     {"base_url https://a.example\nmail {\n from a@b.example\n}", "", "smtp is missing"},
		"mails without a sender":     {"base_url https://a.example\nmail {\n smtp a.example:25\n}", "", "from is missing"},
		"a mail password alone":      {"base_url https://a.example\nmail {\n smtp a.example:25\n from a@b.example\n password x\n}", "", "need each other"},
		"no mail password":           {"base_url https://a.example\nmail {\n smtp a.example:25\n from a@b.example\n user x\n password {env.MODELGATE_NO_SUCH}\n}", "", "mail: password"},
		"a mail password in clear":   {"base_url https://a.example\nmail {\n smtp a.example:25\n from a@b.example\n user x\n password y\n tls off\n}", "", "sent in clear"},
		"an unknown mail server":     {"base_url https://a.example\nmail {\n smtp {env.MODELGATE_NO_SUCH}\n from a@b.example\n}", "", "mail: smtp"},
		"a pattern among the names":  {"", "modelgate_messages {\n models a-*\n respond ok\n}", "is a pattern: only exact names are allowed, at "},
	} {
		t.Run(name, func(t *testing.T) {
			err := g.Reload(gatetest.Config{App: c.app, Site: c.site})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if got := g.Do(t, "GET", "/v1/models", "", ""); got.Status != 401 {
				t.Errorf("the configuration before returns %d", got.Status)
			}
		})
	}
}
