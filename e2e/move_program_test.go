package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAProgramMovesByOneLine runs a program for OpenAI's API after the one change that the guide
// shows: its base URL.
func TestAProgramMovesByOneLine(t *testing.T) {
	t.Parallel()
	program := string(must(os.ReadFile("testdata/notes/main.go")))
	guide := string(must(os.ReadFile("../docs/guide/migration.md")))
	before, after := "client := openai.NewClient()", `client := openai.NewClient(option.WithBaseURL("https://ai.example.com/v1"))`
	if !strings.Contains(guide, "-\t"+before+"\n+\t"+after+"\n") || strings.Count(program, before) != 1 {
		t.Fatal("the guide does not show the line of the program and its change")
	}

	g := running(t, site{
		Money: mediaPrices + `
			price gpt-5-* {
				input 0.25
				output 2
				context 400000
				max_output 128000
			}
			price text-embedding-* {
				input 0.02
				output 0
				context 8192
			}`,
		Messages: demonstration.Messages, Completions: demonstration.Completions,
	})
	g.post("/modelgate/wallets/ada/credit", map[string]any{"amount": "10.00", "reason": "test"}, nil)

	// The program is built in this module, which has the SDK.
	dir := must(os.MkdirTemp(".", "moved-*"))
	t.Cleanup(func() { os.RemoveAll(dir) })
	moved := strings.Replace(program, before, strings.Replace(after, "https://ai.example.com/", g.url("/"), 1), 1)
	moved = strings.Replace(moved, "\t\"github.com/openai/openai-go/v3\"\n", "\t\"github.com/openai/openai-go/v3\"\n\t\"github.com/openai/openai-go/v3/option\"\n", 1)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(moved), 0o600); err != nil {
		t.Fatal(err)
	}
	picture := filepath.Join(t.TempDir(), "picture.png")
	run := exec.CommandContext(t.Context(), "go", "run", "./"+dir, picture)
	run.Env = append(os.Environ(), "OPENAI_API_KEY="+g.Key)
	out, err := run.CombinedOutput()
	if err != nil || len(strings.TrimSpace(string(out))) == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	if png := must(os.ReadFile(picture)); !bytes.HasPrefix(png, []byte("\x89PNG")) {
		t.Errorf("the picture is %q", png)
	}
	g.awaitCalls("ada", 3)
	rows := g.report("ada", "model")
	for _, row := range rows {
		if row.Cost <= 0 {
			t.Errorf("a call cost nothing: %+v", row)
		}
	}
	if len(rows) != 3 {
		t.Errorf("the calls were %+v", rows)
	}
	g.verify()
}
