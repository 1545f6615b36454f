package modelgate_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// documented is a route in the first cell of a row of a table, perhaps with the mark of its
// step-up.
var documented = regexp.MustCompile("`(GET|POST|PUT|DELETE) (/[^`]*)`( ⇧P?)?")

// pathInDocs returns a pattern as the documents write it.
func pathInDocs(pattern string) string {
	return strings.NewReplacer("{*", "{", "...}", "}").Replace(pattern)
}

// marks of docs/reference/console.md. Step-ups that depend on the body are described there in words.
var marks = map[string]string{"step-up": " ⇧", "step-up or log-in": " ⇧", "step-up or password": " ⇧P"}

// TestTheTablesOfTheDocsAreTheRoutes compares the tables of routes with the registry, in
// both directions: no route is without a row, and no row without a route.
func TestTheTablesOfTheDocsAreTheRoutes(t *testing.T) {
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
			t.Errorf("%s is marked %q, and its route asks for %q", name, row.mark, route.StepUp)
		}
		for _, parameter := range route.Query {
			if strings.HasPrefix(route.Path, "/api/") && !strings.Contains(row.line, "`"+parameter+"`") {
				t.Errorf("%s lacks the parameter %s", name, parameter)
			}
		}
		for dialect, word := range map[dialect.Dialect]string{dialect.Anthropic: "anthropic", dialect.OpenAI: "openai", dialect.Platform: "platform"} {
			if route.Dialect != dialect && strings.Contains(row.line, "| "+word+" |") {
				t.Errorf("%s has another dialect than %s", name, word)
			}
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s is documented and no route", name)
	}
}
