package console_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/handlers/console"
)

// TestWhatTakesABodyTakesNoParameters: a caller who adds dry_run would expect that no task
// is made, and one would be made.
func TestWhatTakesABodyTakesNoParameters(t *testing.T) {
	g := start(t)
	a := newHolder(t, g, "admin").account
	for _, row := range console.Rows() {
		if !row.User || row.Method != "POST" && row.Method != "PUT" {
			continue
		}
		if len(row.Params) > 0 {
			continue // a task has a dry run
		}
		for _, query := range []string{"?dry_run=true", "?p=1"} {
			got, e := a.ask(t, row.Method, pathOf(row)+query, "")
			if got.Status != 400 || e.Code != "INVALID_PARAMETER" || !strings.HasSuffix(e.Message, "is not a parameter of this path; allowed: none") {
				t.Errorf("%s %s%s: answered %d %s", row.Method, row.Path, query, got.Status, got.Body)
			}
		}
		if got, e := a.ask(t, row.Method, pathOf(row)+"?%zz", ""); got.Status != 400 || e.Code != "INVALID_PARAMETER" {
			t.Errorf("%s %s: answered %d %s", row.Method, row.Path, got.Status, got.Body)
		}
	}
}
