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

var update = flag.Bool("update", false, "write what is adapted into the golden files")

const separator = "----------\n"

// TestAdapt holds what each Caddyfile below testdata/adapt becomes: JSON, or,
// where the name begins with "bad", an error that says in which line.
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
				t.Errorf("was answered %v", err)
			} else if bad && !place.MatchString(got) {
				t.Errorf("the error names no line: %s", got)
			}
			if *update {
				if err := os.WriteFile(file, []byte(caddyfile+separator+got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("became\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestABadConfigurationDoesNotStart holds what only provisioning can tell.
func TestABadConfigurationDoesNotStart(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	for name, c := range map[string]struct{ app, site, want string }{
		"a header of another meaning": {"version_header x-api-key", "", "has another meaning"},
		"a header that is no version": {"version_header x-thing", "", "must end in -version"},
		"a header that is none":       {`version_header "a version"`, "", "letters, digits"},
		"too little memory":           {"limits {\n body_memory 1MiB\n}", "", "at least 64 MiB"},
		"an idle without lifetime":    {"session {\n idle 31d\n}", "", "lifetime from idle"},
		"a session for ever":          {"session {\n lifetime 500d\n}", "", "to 9600h"},
		"an idle of a moment":         {"session {\n idle 1s\n}", "", "idle is at least 1m"},
		"a stamp of a moment":         {"verification {\n lifetime 1s\n}", "", "from 30s to 1h"},
		"a stamp for ever":            {"verification {\n lifetime 2h\n}", "", "from 30s to 1h"},
		"passkeys of another site":    {"base_url https://a.example\npasskey {\n rp_id b.example\n}", "", "browsers would refuse it"},
		"passkeys of a neighbour":     {"base_url https://a.b.example\npasskey {\n rp_id ab.example\n origin https://xab.example\n}", "", "browsers would refuse it"},
		"passkeys of no site":         {"passkey {\n rp_id b.example\n}", "", "there is no origin"},
		"passkeys for an address":     {"base_url http://127.0.0.1:8080\npasskey {\n rp_id localhost\n}", "", "https, and for http://localhost, alone"},
		"a pattern among the names":   {"", "modelgate_messages {\n models a-*\n respond ok\n}", "is a pattern, at "},
	} {
		t.Run(name, func(t *testing.T) {
			err := g.Reload(gatetest.Config{App: c.app, Site: c.site})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("was answered %v, want %q", err, c.want)
			}
			if got := g.Do(t, "GET", "/v1/models", "", ""); got.Status != 401 {
				t.Errorf("the configuration before it no longer serves: %d", got.Status)
			}
		})
	}
}
