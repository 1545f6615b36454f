package cli

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// Names of older releases may contain control characters, which must not reach the
// terminal.
func TestNamesWithControlCharactersAreQuotedInTables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":              "\t-\t",
		"laptop ü 🍀":    "\tlaptop ü 🍀\t",
		`a "b"`:         "\ta \"b\"\t",
		"a\x1b[2Jb":     "\t\"a\\x1b[2Jb\"\t",
		"a\u202eb":      "\t\"a\\u202eb\"\t",
		"two\nlines\tx": "\t\"two\\nlines\\tx\"\t",
		"\xff":          "\t\"\\xff\"\t",
	} {
		shown := row(keyCells(&adminapi.Key{Key: identity.Key{ID: "key_1", Name: name}, UserName: "ann"})...)
		if !strings.Contains(shown, want) {
			t.Errorf("%q is shown as\n%q, want %q", name, shown, want)
		}
	}
}
