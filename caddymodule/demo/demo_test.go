package demo_test

import (
	"bytes"
	"encoding/json"
	"image/png"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule/demo"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestMain(m *testing.M) { gatetest.Main(m) }

func TestTheDemoListensWhereItIsToldAlone(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:8080", "[::1]:8080", "192.0.2.1:8080"} {
		adapted, err := demo.Adapt(address, "127.0.0.1:2020", t.TempDir(), "127.0.0.1:2021")
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Apps struct {
				HTTP struct {
					Servers map[string]struct {
						Listen []string `json:"listen"`
					} `json:"servers"`
				} `json:"http"`
			} `json:"apps"`
		}
		if err := json.Unmarshal(adapted, &config); err != nil {
			t.Fatal(err)
		}
		if len(config.Apps.HTTP.Servers) != 1 {
			t.Fatalf("%s: it has %d servers", address, len(config.Apps.HTTP.Servers))
		}
		for _, server := range config.Apps.HTTP.Servers {
			if !slices.Equal(server.Listen, []string{address}) {
				t.Errorf("%s: it listens at %q", address, server.Listen)
			}
		}
	}
}

// written is what a command has written so far.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// lines are those that begin with a word.
func (w *written) lines(word string) (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.text.String()) {
		if strings.HasPrefix(line, word) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// TestTheDemoMakesAnImageAndAVideoAsItSays runs what the demo prints, in a shell
// as a person would, and waits for the callbacks.
func TestTheDemoMakesAnImageAndAVideoAsItSays(t *testing.T) {
	for _, program := range []string{"sh", "curl", "sed", "tee", "grep"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()                                     // it is removed when Caddy has stopped
	gatetest.Start(t, gatetest.Config{Site: "respond ok"}) // Caddy is ours until the test ends
	var told written
	run, err := demo.Start(t.Context(), "127.0.0.1:0", filepath.Join(dir, "data"), &told)
	if err != nil {
		t.Fatal(err)
	}
	var introduction, script strings.Builder
	if err := run.Introduce(&introduction); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(introduction.String()) {
		if strings.HasPrefix(line, "  task=") || strings.HasPrefix(line, "  until ") || strings.HasPrefix(line, "  curl -s -o ") {
			script.WriteString(line)
		}
	}
	shell := exec.CommandContext(t.Context(), "sh", "-e")
	shell.Dir, shell.Stdin = dir, strings.NewReader(script.String())
	if out, err := shell.CombinedOutput(); err != nil || strings.Count(string(out), `"status":"success"`) != 2 {
		t.Fatalf("%v\n%s\nof\n%s", err, out, script.String())
	}
	picture, err := os.ReadFile(filepath.Join(dir, "modelgate-demo.png"))
	if err != nil {
		t.Fatal(err)
	}
	if drawn, err := png.Decode(bytes.NewReader(picture)); err != nil || drawn.Bounds().Dx() < 100 {
		t.Errorf("the image cannot be opened: %v", err)
	}
	film, err := os.ReadFile(filepath.Join(dir, "modelgate-demo.mp4"))
	if err != nil || len(film) < 1000 || string(film[4:8]) != "ftyp" {
		t.Errorf("the video cannot be opened: %v, %d bytes", err, len(film))
	}
	lines := gatetest.Eventually(t, "two callbacks are told", func() (lines []string, ok bool) {
		lines = told.lines("A callback")
		return lines, len(lines) >= 2
	})
	if len(lines) != 2 {
		t.Fatalf("of callbacks it tells %q", lines)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "A callback came, its signature is right: task.succeeded task_") || !strings.Contains(line, run.BaseURL+"/v1/files/") {
			t.Errorf("it tells %q", line)
		}
	}

	// What anybody sends is not believed.
	forged, err := http.NewRequestWithContext(t.Context(), http.MethodPost, receiverOf(t, run.Admin), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	forged.Header.Set("Webhook-Id", "evt_1")
	forged.Header.Set("Webhook-Timestamp", strconv.FormatInt(time.Now().Unix(), 10))
	forged.Header.Set("Webhook-Signature", "v1,AAAA")
	answer, err := http.DefaultClient.Do(forged)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest || len(told.lines("A callback is refused: its signature is wrong")) != 1 {
		t.Errorf("a forged callback is answered %d", answer.StatusCode)
	}
}

// receiverOf finds out where the callbacks of the demo's key go.
func receiverOf(t *testing.T, admin string) string {
	t.Helper()
	code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "key", "list", "--user", "demo", "--json", "--address", admin)
	found := regexp.MustCompile(`"callback_url":"(http://127\.0\.0\.1:[0-9]+/callbacks)"`).FindStringSubmatch(stdout)
	if found == nil {
		t.Fatalf("ended with %d: %s%s", code, stdout, stderr)
	}
	return found[1]
}
