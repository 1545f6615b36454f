package modelgate_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// documented matches a route in the first cell of a row, with an optional mark of its step-up.
var documented = regexp.MustCompile("`(GET|POST|PUT|DELETE) (/[^`]*)`( ⇧P?)?")

// pathInDocs returns the form of a pattern in the documents.
func pathInDocs(pattern string) string {
	return strings.NewReplacer("{*", "{", "...}", "}").Replace(pattern)
}

// marks has the marks of docs/reference/console.md by step-up. Step-ups that depend on the body
// have no mark there.
var marks = map[string]string{"step-up": " ⇧", "step-up or log-in": " ⇧", "step-up or password": " ⇧P"}

// TestTheDocsHaveEveryRoute compares the tables of routes with the registry, in both
// directions.
func TestTheDocsHaveEveryRoute(t *testing.T) {
	t.Parallel()
	type row struct{ mark, line string }
	rows := make(map[string]row)
	var files []string
	for file := range documents(t) {
		if strings.HasPrefix(file, "docs/reference/") {
			files = append(files, file)
		}
	}
	for _, file := range files {
		for line := range strings.Lines(read(t, file)) {
			if cells := strings.Split(line, "|"); len(cells) > 2 && strings.TrimSpace(cells[0]) == "" {
				for _, found := range documented.FindAllStringSubmatch(cells[1], -1) {
					rows[found[1]+" "+found[2]] = row{found[3], line}
				}
			}
		}
	}
	for _, route := range reply.Routes() {
		name := route.Method + " " + pathInDocs(route.Path)
		row, found := rows[name]
		if !found {
			t.Errorf("no table has %s", name)
			continue
		}
		if row.mark != marks[route.StepUp] {
			t.Errorf("%s has the mark %q, its route requires %q", name, row.mark, route.StepUp)
		}
		if roles := strings.Join(route.Roles, ", "); roles != "" && !strings.Contains(row.line, "| "+roles+" |") {
			t.Errorf("%s lacks its roles: %s", name, roles)
		}
		for _, parameter := range route.Query {
			if strings.HasPrefix(route.Path, "/api/") && !strings.Contains(row.line, "`"+parameter+"`") {
				t.Errorf("%s lacks the parameter %s", name, parameter)
			}
		}
		for dialect, word := range map[dialect.Dialect]string{dialect.Anthropic: "anthropic", dialect.OpenAI: "openai", dialect.Platform: "platform"} {
			if route.Dialect != dialect && strings.Contains(row.line, "| "+word+" |") {
				t.Errorf("the dialect of %s is not %s", name, word)
			}
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s is documented but is not a route", name)
	}
}
