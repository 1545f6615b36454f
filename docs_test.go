package modelgate_test

import (
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheAdapterOfTheDocsConforms builds the adapter of docs/backends.md as a package of this
// module and runs its test.
func TestTheAdapterOfTheDocsConforms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/backends.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```go\n")[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of Go in docs/backends.md, want the adapter and its test", len(blocks))
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	for i, name := range []string{"acme.go", "acme_test.go"} {
		code, _, _ := strings.Cut(blocks[i], "```")
		if formatted, err := format.Source([]byte(code)); err != nil || string(formatted) != code {
			t.Errorf("block %d is not formatted by gofmt: %v", i+1, err)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(root, "backends", "acme", name)] = file
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "acme.test")
	for _, command := range [][]string{
		{"go", "test", "-c", "-vet=off", "-overlay", file, "-o", binary, "./backends/acme"},
		{binary, "-test.run", "TestConformance"},
	} {
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput() //nolint:gosec // commands of this file
		if err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
}
