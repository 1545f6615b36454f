package modelgate_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/caddy-modelgate/modelgate/docs"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
)

// operation has the properties of a route that both docs/openapi.yaml and the registry contain.
type operation struct {
	ID         string `yaml:"operationId"`
	Security   []map[string]any
	StepUp     string   `yaml:"x-step-up"`
	Roles      []string `yaml:"x-roles"`
	Body       any      `yaml:"requestBody"`
	Parameters []parameter
}

type parameter struct {
	Ref  string `yaml:"$ref"`
	Name string
	In   string
}

// schemes are the security schemes of the document by credential. A signature has no scheme.
var schemes = map[reply.Credential][]string{
	reply.APIKey: {"apiKey", "apiKeyHeader"}, reply.User: {"accessToken", "session"}, reply.HalfOpen: {"accessToken", "session"},
}

// TestTheOpenAPIDocumentHasTheRoutes compares the document with the registry, in both directions:
// paths and methods, credentials, step-ups, and the parameters of paths and queries.
func TestTheOpenAPIDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths      map[string]map[string]yaml.Node
		Components struct{ Parameters map[string]parameter }
	}
	if err := yaml.Unmarshal(docs.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	decode := func(node yaml.Node, into any) {
		if err := node.Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	operations := make(map[string]operation)
	for path, item := range document.Paths {
		var shared []parameter
		decode(item["parameters"], &shared)
		for method, node := range item {
			if method == "parameters" {
				continue
			}
			var o operation
			decode(node, &o)
			o.Parameters = append(o.Parameters, shared...)
			operations[strings.ToUpper(method)+" "+path] = o
		}
	}
	ids := make(map[string]bool)
	for _, route := range reply.Routes() {
		name := route.Method + " " + pathInDocs(route.Path)
		o, found := operations[name]
		if !found {
			t.Errorf("%s is not in the document", name)
			continue
		}
		delete(operations, name)
		if o.ID == "" || ids[o.ID] {
			t.Errorf("%s has no unique operationId: %q", name, o.ID)
		}
		ids[o.ID] = true
		if o.StepUp != route.StepUp {
			t.Errorf("%s has the x-step-up %q, its route %q", name, o.StepUp, route.StepUp)
		}
		if !slices.Equal(o.Roles, route.Roles) {
			t.Errorf("%s has the x-roles %q, its route %q", name, o.Roles, route.Roles)
		}
		var accepted []string
		for _, scheme := range o.Security {
			accepted = slices.AppendSeq(accepted, maps.Keys(scheme))
		}
		if slices.Sort(accepted); !slices.Equal(accepted, schemes[route.Credential]) {
			t.Errorf("%s has the security %q, want %q", name, accepted, schemes[route.Credential])
		}
		if o.Body != nil && route.MaxBody == 0 {
			t.Errorf("%s has a body, but its route reads none", name)
		}
		var query, path, want []string
		for _, p := range o.Parameters {
			if p.Ref != "" {
				p = document.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
			}
			switch p.In {
			case "query":
				query = append(query, p.Name)
			case "path":
				path = append(path, "{"+p.Name+"}")
			}
		}
		for segment := range strings.SplitSeq(pathInDocs(route.Path), "/") {
			if strings.HasPrefix(segment, "{") {
				want = append(want, segment)
			}
		}
		if !slices.Equal(path, want) {
			t.Errorf("%s has the path parameters %q, want %q", name, path, want)
		}
		slices.Sort(query)
		known := slices.Sorted(slices.Values(route.Query))
		// Routes of calls declare no query: they ignore all parameters except beta.
		if !slices.Equal(query, known) && (len(known) > 0 || !reflect.DeepEqual(query, []string{"beta"})) {
			t.Errorf("%s has the query parameters %q, its route %q", name, query, known)
		}
	}
	for name := range operations {
		t.Errorf("%s is in the document but is not a route", name)
	}
}

var target = regexp.MustCompile(`\[[^\]]+\]\(([^)]+)\)`)

// TestTheSummaryForAssistantsConforms checks that docs/llms.txt has the form of llmstxt.org. Its
// links must lead to a served document or to a file of this repository.
func TestTheSummaryForAssistantsConforms(t *testing.T) {
	t.Parallel()
	text := string(docs.LLMs)
	if !regexp.MustCompile(`^# modelgate\n\n(> .+\n)+\n`).MatchString(text) {
		t.Error("docs/llms.txt does not begin with a title and a summary")
	}
	intro, sections, _ := strings.Cut(text, "\n## ")
	if target.MatchString(intro) {
		t.Error("the text before the sections has links")
	}
	entry := regexp.MustCompile(`^- \[[^\]]+\]\([^)]+\): .+\n$`)
	for line := range strings.Lines("## " + sections) {
		if line != "\n" && !strings.HasPrefix(line, "## ") && !entry.MatchString(line) {
			t.Errorf("%q is neither a title nor a link", line)
		}
	}
	served := make(map[string]bool)
	for _, route := range reply.Routes() {
		served[route.Path] = true
	}
	found := target.FindAllStringSubmatch(text, -1)
	for _, match := range found {
		file, ofRepository := strings.CutPrefix(match[1], "https://"+module+"/blob/main/")
		if ofRepository {
			if _, err := os.Stat(filepath.FromSlash(file)); err != nil {
				t.Error(err)
			}
		} else if !served[match[1]] {
			t.Errorf("the target of the link %s does not exist", match[1])
		}
	}
	if len(found) < 15 {
		t.Errorf("only %d links were found", len(found))
	}
}
