package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image/png"
	"io"
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
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/caddymodule/demo"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestMain(m *testing.M) { gatetest.Main(m) }

func TestTheDemoListensOnlyAtItsAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:8080", "[::1]:8080", "192.0.2.1:8080"} {
		adapted, err := demo.Adapt(address, "127.0.0.1:2020", t.TempDir(), "127.0.0.1:2021", true)
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
			t.Fatalf("%s: %d servers", address, len(config.Apps.HTTP.Servers))
		}
		for _, server := range config.Apps.HTTP.Servers {
			if !slices.Equal(server.Listen, []string{address}) {
				t.Errorf("%s: the server listens at %q", address, server.Listen)
			}
		}
	}
}

// logBuffer is a writer that can be read concurrently.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (w *logBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// lines returns the lines that contain a word.
func (w *logBuffer) lines(word string) (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.text.String()) {
		if strings.Contains(line, word) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// commandsOf returns the shell commands of an introduction, without the programs in other
// languages, whose packages may be missing.
func commandsOf(introduction string) string {
	var script strings.Builder
	for block := range strings.SplitSeq(introduction, "\n\n") {
		heading, commands, _ := strings.Cut(block, "\n")
		if strings.HasPrefix(heading, "# ") && !strings.Contains(commands, "<<'END'") {
			script.WriteString(commands + "\n")
		}
	}
	return script.String()
}

// TestTheCommandsOfTheDemoWork runs all shell commands that the demo prints, and checks the
// callbacks.
func TestTheCommandsOfTheDemoWork(t *testing.T) {
	for _, program := range []string{"sh", "curl", "sed", "tee", "grep"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()                                     // removed after Caddy has stopped
	gatetest.Start(t, gatetest.Config{Site: "respond ok"}) // no other test uses Caddy until the end
	var log logBuffer
	run, err := demo.Start(t.Context(), "127.0.0.1:0", filepath.Join(dir, "data"), &log, false)
	if err != nil {
		t.Fatal(err)
	}
	var introduction strings.Builder
	if err := run.Introduce(&introduction, os.Args[0], false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(introduction.String(), os.Args[0], "caddy")) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	script := commandsOf(introduction.String())
	shell := exec.CommandContext(t.Context(), "sh", "-e")
	shell.Dir, shell.Stdin = dir, strings.NewReader(script)
	shell.Env = append(os.Environ(), "GATETEST_AS_CADDY=1") // the commands run this program
	out, err := shell.CombinedOutput()
	for text, count := range map[string]int{
		`"stop_reason":"end_turn"`: 1, "data: [DONE]": 1, `"status":"success"`: 4, `"success":true`: 6, `"success":false`: 0,
		`"pay_url":"` + run.BaseURL: 1, "Everything adds up.": 1,
	} {
		if err != nil || strings.Count(string(out), text) != count {
			t.Fatalf("%q is printed %d times, want %d (%v):\n%s\nby\n%s", text, strings.Count(string(out), text), count, err, out, script)
		}
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
	lines := gatetest.Eventually(t, "two callbacks are logged", func() (lines []string, ok bool) {
		lines = log.lines("callback  verified")
		return lines, len(lines) >= 2
	})
	if len(lines) != 2 {
		t.Fatalf("the callbacks are logged as %q", lines)
	}
	for _, line := range lines {
		if !regexp.MustCompile(`^\d\d:\d\d:\d\d  callback  verified  task\.succeeded  task_\w+$`).MatchString(line) || len(line) > 80 {
			t.Errorf("the demo logs %q", line)
		}
	}

	// A callback with a wrong signature is refused.
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
	if answer.StatusCode != http.StatusBadRequest || len(log.lines("callback  refused: the signature is wrong")) != 1 {
		t.Errorf("a forged callback gets %d", answer.StatusCode)
	}

	checkSave(t, introduction.String(), dir)
	checkRecordings(t, introduction.String(), dir)
	checkFreePlan(t, run)
	checkOwnReceiver(t, run)
	checkTwoCalls(t, run)
}

// checkTwoCalls disconnects from two slow calls, like an SDK that tries again after its
// timeout. Both are charged, because the backend has the body.
func checkTwoCalls(t *testing.T, run *demo.Run) {
	t.Helper()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		const chat = `{"model":"demo-1","messages":[{"role":"user","content":"Hello demo:slow=1s"}]}`
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, run.BaseURL+"/v1/chat/completions", strings.NewReader(chat))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+run.APIKey)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("the call was not slow: %s", resp.Status)
		}
		cancel()
	}
	charged := regexp.MustCompile(`499 +client_gone +\d+ +\d+ +0\.000\d+`)
	gatetest.Eventually(t, "both calls are charged", func() (none struct{}, ok bool) {
		_, stdout, _ := gatetest.Caddy(t, "", "modelgate", "call", "list", "--user", "demo", "--address", run.Admin)
		return none, len(charged.FindAllString(stdout, -1)) == 2
	})
}

// checkSave runs the printed commands with a task that is refused and a task that fails.
func checkSave(t *testing.T, introduction, dir string) {
	t.Helper()
	exports, _, _ := strings.Cut(introduction[strings.Index(introduction, "export "):], "\n\n")
	_, save, _ := strings.Cut(introduction, "\nsave() {\n")
	save, _, _ = strings.Cut(save, "\n}\n")
	_, image, _ := strings.Cut(introduction, "\n# An image\n")
	image, _, _ = strings.Cut(image, "\n\n")
	for change, want := range map[string]string{"image-demo-1, image-none-1": `"MODEL_NOT_FOUND"`, "a lighthouse, demo:fail": "The task failed"} {
		before, after, _ := strings.Cut(change, ", ")
		shell := exec.CommandContext(t.Context(), "sh", "-e")
		shell.Dir = dir
		shell.Stdin = strings.NewReader(exports + "\nsave() {\n" + save + "\n}\nrm modelgate-demo.png\n" + strings.Replace(image, before, after, 1))
		out, err := shell.CombinedOutput()
		if _, none := os.Stat(filepath.Join(dir, "modelgate-demo.png")); err == nil || !strings.Contains(string(out), want) || !os.IsNotExist(none) {
			t.Errorf("%s: want %q, an error and no file; got %v:\n%s", change, want, err, out)
		}
		if err := os.WriteFile(filepath.Join(dir, "modelgate-demo.png"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// checkRecordings sends an MP3 to both endpoints of recordings without a format, as the examples of the
// vendor's SDK do.
func checkRecordings(t *testing.T, introduction, dir string) {
	t.Helper()
	exports, _, _ := strings.Cut(introduction[strings.Index(introduction, "export "):], "\n\n")
	shell := exec.CommandContext(t.Context(), "sh", "-e")
	shell.Dir = dir
	shell.Stdin = strings.NewReader(exports + `
		curl -sf $BASE/v1/audio/speech -o speech.mp3 -H "authorization: Bearer $KEY" -d '{"model": "speech-demo-1", "voice": "alloy", "input": "Hello"}'
		for action in transcriptions translations; do
			curl -s $BASE/v1/audio/$action -H "authorization: Bearer $KEY" -F model=whisper-demo-1 -F 'file=@speech.mp3;type=audio/mpeg'
		done`)
	if out, err := shell.CombinedOutput(); err != nil || strings.Count(string(out), `"text":"The demo has no ears`) != 2 {
		t.Errorf("%v: %s", err, out)
	}
}

// checkFreePlan makes the call of the introduction, which has no max_tokens, with the free plan.
func checkFreePlan(t *testing.T, run *demo.Run) {
	t.Helper()
	var key struct {
		Secret string `json:"api_key"`
	}
	for _, words := range []string{"user create bob", "subscription grant bob 2 --reason try", "key create bob --json"} {
		code, stdout, stderr := gatetest.Caddy(t, "", append(append([]string{"modelgate"}, strings.Fields(words)...), "--address", run.Admin)...)
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s", words, code, stderr)
		}
		_ = json.Unmarshal([]byte(stdout), &key)
	}
	const chat = `{"model":"demo-1","messages":[{"role":"user","content":"Hello"}]}`
	if status, body := post(t, run.BaseURL+"/v1/chat/completions", key.Secret, chat); status != http.StatusOK {
		t.Errorf("a call of the free plan gets %d %s", status, body)
	}
}

// checkOwnReceiver creates keys with callback addresses of the user. The demo allows only port
// 9000.
func checkOwnReceiver(t *testing.T, run *demo.Run) {
	t.Helper()
	for url, want := range map[string]int{"http://localhost:9000/": http.StatusOK, "http://127.0.0.1:9000/x": http.StatusOK, "http://127.0.0.1:9001/": http.StatusBadRequest} {
		status, body := post(t, run.BaseURL+"/api/token/", run.AccessToken, `{"name":"own","callback_url":"`+url+`","password":"`+run.Password+`"}`)
		if status != want {
			t.Errorf("%s gets %d %s", url, status, body)
		}
	}
}

// post sends JSON with a credential and returns the status and the body of the answer.
func post(t *testing.T, url, credential, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// receiverOf returns the callback URL of the demo's key.
func receiverOf(t *testing.T, admin string) string {
	t.Helper()
	code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "key", "list", "--user", "demo", "--json", "--address", admin)
	found := regexp.MustCompile(`"callback_url":"(http://127\.0\.0\.1:[0-9]+/modelgate-demo/callbacks)"`).FindStringSubmatch(stdout)
	if found == nil {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	return found[1]
}

// TestTheDemoLogsOneLinePerCall logs calls and tasks through the encoder of the demo.
func TestTheDemoLogsOneLinePerCall(t *testing.T) {
	t.Parallel()
	info, err := caddy.GetModule("caddy.logging.encoders.modelgate_demo")
	if err != nil {
		t.Fatal(err)
	}
	var lines logBuffer
	encoder := info.New().(*demo.Lines)
	log := func(message string, fields ...zap.Field) {
		zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&lines), zapcore.DebugLevel)).Info(message, fields...)
	}
	log("call", zap.String("route", "messages"), zap.Int("status", 200), zap.String("model", "demo-1"), zap.String("ended", "complete"),
		zap.Int64("input", 7), zap.Int64("cache_read", 5), zap.Int64("output", 18), zap.String("cost", "0.000312"), zap.Float64("duration", 0.0041))
	log("call", zap.String("route", "chat"), zap.Int("status", 402), zap.String("model", "a\x1b[2J"), zap.String("ended", "refused"),
		zap.String("code", "INSUFFICIENT_BALANCE"), zap.Float64("duration", 0))
	log("call", zap.String("route", "new"), zap.Int("status", 499), zap.String("ended", "client_gone"), zap.Float64("duration", 1.5))
	log("call", zap.String("route", "responses"), zap.String("method", "GET"), zap.Int("status", 426), zap.String("code", "UPGRADE_REQUIRED"))
	log("task", zap.String("route", "image"), zap.Int("status", 200), zap.String("model", "image-demo-1"), zap.String("hold", "0.02"), zap.Float64("duration", 0.005))
	log("a backend is slow")
	encoder.Color = true
	log("call", zap.String("route", "messages"), zap.Int("status", 200))
	log("call", zap.String("route", "messages"), zap.Int("status", 503))
	want := `POST /v1/messages  200  demo-1  12 in / 18 out  $0.000312  4 ms
POST /v1/chat/completions  402  a?[2J  INSUFFICIENT_BALANCE  0 ms
POST new  499  client_gone  1500 ms
GET /v1/responses  426  UPGRADE_REQUIRED  0 ms
POST /v1/platform/image  200  image-demo-1  $0.02 held  5 ms
POST /v1/messages  ` + "\x1b[32m200\x1b[0m" + `  0 ms
POST /v1/messages  ` + "\x1b[31m503\x1b[0m" + `  0 ms
`
	if got := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  `).ReplaceAllString(lines.text.String(), ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTheREADMEShowsTheOutputOfTheDemo compares the beginning of the output.
func TestTheREADMEShowsTheOutputOfTheDemo(t *testing.T) {
	t.Parallel()
	run := demo.Run{BaseURL: "http://localhost:37263", APIKey: "sk-…", AccessToken: "mgat_…", Password: "…", User: "demo"}
	var plain, colored strings.Builder
	if err := errors.Join(run.Introduce(&plain, "caddy", false), run.Introduce(&colored, "caddy", true)); err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(strings.ReplaceAll(colored.String(), "\x1b[1m", ""), "\x1b[0m", "") != plain.String() || strings.Count(colored.String(), "\x1b[1m# ") < 8 {
		t.Errorf("the colored output is\n%q", colored.String())
	}
	for _, file := range []string{"../../README.md", "../../README.zh.md"} {
		text, err := os.ReadFile(file) //nolint:gosec // one of two
		if err != nil {
			t.Fatal(err)
		}
		_, shown, _ := strings.Cut(string(text), "```\nmodelgate demo\n")
		shown, _, _ = strings.Cut(shown, "```")
		if len(shown) < 300 || !strings.HasPrefix(plain.String(), "modelgate demo\n"+shown) {
			t.Errorf("%s shows\n%s", file, shown)
		}
	}
}
