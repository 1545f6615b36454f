package cli_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestTheConfigurationOfInitServesPaidCalls starts the configuration of init with the printed
// command and makes a paid call.
func TestTheConfigurationOfInitServesPaidCalls(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "respond ok"}) // for its backend
	g.Backend.On("local-1", gatetest.JSON(http.StatusOK, `{"id":"x","object":"chat.completion","model":"local-1","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":1000,"total_tokens":2000}}`))
	front := httptest.NewServer(http.StripPrefix("/proxy", httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: g.Backend.Address})))
	t.Cleanup(front.Close)
	site := "http://" + freeAddress(t)
	dir := filepath.Join(t.TempDir(), "gate")
	code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "init", dir, "--domain", site, "--vllm", front.URL+"/proxy/v1", "--vllm-models", "local-1", "--anthropic", "--json")
	var made struct {
		Caddyfile, Environment string
		Missing                []string
	}
	if err := json.Unmarshal([]byte(stdout), &made); err != nil || code != 0 || strings.Join(made.Missing, " ") != "ANTHROPIC_API_KEY" {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	if info, err := os.Stat(made.Environment); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the environment: %v, %v", info.Mode(), err)
	}
	if code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "doctor", "--config", made.Caddyfile); code != 0 || !strings.Contains(stdout, "the variable ANTHROPIC_API_KEY, which is sent to api.anthropic.com:443, is still replace-me") || strings.Contains(stdout, "MODELGATE_SECRET") {
		t.Errorf("the doctor: exit code %d: %s%s", code, stdout, stderr)
	}

	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(made.Caddyfile)
	if err != nil || strings.Count(string(text), ":9180 {") != 1 {
		t.Fatalf("the configuration serves no metrics (%v):\n%s", err, text)
	}
	metrics := freeAddress(t) // another program may use port 9180
	if err := os.WriteFile(made.Caddyfile, []byte(strings.Replace(string(text), ":9180 {", metrics[strings.LastIndex(metrics, ":"):]+" {", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := freeAddress(t)
	caddy := exec.CommandContext(t.Context(), program, "run", "--config", made.Caddyfile, "--envfile", made.Environment)
	caddy.Env = append(os.Environ(), "GATETEST_AS_CADDY=1", "CADDY_ADMIN="+admin, "HOME="+dir)
	var log strings.Builder
	caddy.Stderr = &log
	if err := caddy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = caddy.Process.Kill()
		_ = caddy.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	gatetest.Eventually(t, "it is ready", func() (none struct{}, ok bool) {
		code, _, _ := gatetest.Caddy(t, "", "modelgate", "status", "--address", admin)
		return none, code == 0
	})
	var key struct {
		Secret string `json:"api_key"`
	}
	for _, words := range []string{"user create alice", "wallet credit alice 5.00 --reason try", "key create alice --json"} {
		code, stdout, stderr := gatetest.Caddy(t, "", append(append([]string{"modelgate"}, strings.Fields(words)...), "--address", admin)...)
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s", words, code, stderr)
		}
		_ = json.Unmarshal([]byte(stdout), &key)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site+"/v1/chat/completions", strings.NewReader(`{"model":"local-1","messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key.Secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"content":"hi"`) {
		t.Fatalf("got %s %s, %v", resp.Status, body, err)
	}
	gatetest.Eventually(t, "the call is paid", func() (none struct{}, ok bool) {
		_, stdout, _ := gatetest.Caddy(t, "", "modelgate", "wallet", "show", "alice", "--address", admin)
		return none, strings.Contains(stdout, "4.9992 USD") // 1,000 tokens at 0.20 and 1,000 at 0.60 per million
	})

	// The command that init prints for the first call, if the server is the only backend.
	_, stdout, stderr = gatetest.Caddy(t, "", "modelgate", "init", t.TempDir(), "--domain", site, "--vllm", g.Backend.Address, "--vllm-models", "local-1")
	_, first, _ := strings.Cut(stdout, "\n# The first call")
	_, first, _ = strings.Cut(first, "\n")
	shell := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.Replace(first, "sk-…", key.Secret, 1)) //nolint:gosec // the command under test
	if body, err := shell.Output(); err != nil || !strings.Contains(string(body), `"content":"hi"`) {
		t.Fatalf("%q got %s, %v (%s)", first, body, err, stderr)
	}
	resp, err = http.Get("http://" + metrics + "/metrics") //nolint:noctx // of this test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "modelgate_tokens_total") {
		t.Errorf("the metrics are %s %.300s, %v", resp.Status, body, err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestInitPromptsForMissingFlags(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	code, stdout, stderr := gatetest.Caddy(t, "ai.example.com\nno\nY\n\nlocalhost:11434\nllama3:8b, phi4\n\n", "modelgate", "init", dir)
	if code != 0 || strings.Count(stderr, "?") != 2 || !strings.Contains(stderr, "Its models, separated by spaces or commas:") {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	file, environment := filepath.Join(dir, "Caddyfile"), filepath.Join(dir, "environment")
	if !strings.Contains(stdout, " run --config "+file+" --envfile "+environment+"\n") || !strings.Contains(stdout, "OPENAI_API_KEY") {
		t.Errorf("init prints %s", stdout)
	}
	text, err := os.ReadFile(file) //nolint:gosec // of this test
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{
		"\nai.example.com {": true, "api.anthropic.com": false, "api.openai.com": true, "@vllm": false,
		"@ollama modelgate_model llama3:8b phi4": true, "price phi4 {": true, "modelgate_tasks": false, "@openai modelgate_model gpt-5 gpt-5-mini*": true, "# Guesses": true,
	} {
		if strings.Contains(string(text), word) != want {
			t.Errorf("contains %q: %t, want %t:\n%s", word, !want, want, text)
		}
	}

	secrets, _ := os.ReadFile(environment) //nolint:gosec // of this test
	if code, _, stderr := gatetest.Caddy(t, "", "modelgate", "init", dir, "--openai"); code != 4 || !strings.Contains(stderr, "already exists") {
		t.Errorf("a second run: exit code %d: %s", code, stderr)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := gatetest.Caddy(t, "", "modelgate", "init", dir, "--openai"); code != 4 {
		t.Errorf("with an existing environment file: exit code %d", code)
	}
	if after, _ := os.ReadFile(environment); string(after) != string(secrets) { //nolint:gosec // of this test
		t.Error("the secrets were changed")
	}
}

func TestInitRepeatsAQuestionAfterAWrongAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answers := "a b\nhttp://ai.example\nai.example.com\nno\nmaybe\nno\nx/y\n10.0.0.5:8000\n\na{b\nqwen\nlocalhost:11434\nqwen\nllama\n"
	code, stdout, stderr := gatetest.Caddy(t, answers, "modelgate", "init", dir)
	if code != 0 {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	for word, count := range map[string]int{
		"Domain of the site": 3, "of a vLLM server": 2, "Its models": 5, "of an Ollama server": 1, "Serve models of OpenAI?": 2, `"maybe" is neither yes nor no`: 1,
		`--domain "a b" is not an address`: 1, "not encrypted": 1, "--vllm-models are required together": 1, "price qwen is given twice": 1,
	} {
		if strings.Count(stderr, word) != count {
			t.Errorf("%q is printed %d times, want %d:\n%s", word, strings.Count(stderr, word), count, stderr)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "Caddyfile")) //nolint:gosec // of this test
	for _, word := range []string{"\nai.example.com {", "@vllm modelgate_model qwen\n", "reverse_proxy @vllm http://10.0.0.5:8000 {\n", "@ollama modelgate_model llama\n"} {
		if err != nil || !strings.Contains(string(text), word) {
			t.Errorf("no %q in %s, %v", word, text, err)
		}
	}

	for _, answers := range []string{"ai.example.com\ny\nn\nx/y\n", "ai.example.com\ny\nn\nx:1\n"} {
		dir := t.TempDir()
		code, stdout, stderr := gatetest.Caddy(t, answers, "modelgate", "init", dir)
		if files, err := os.ReadDir(dir); code != 2 || !strings.Contains(stderr, "Error: --vllm") || err != nil || len(files) > 0 {
			t.Errorf("after %q: exit code %d, %d files: %s%s", answers, code, len(files), stdout, stderr)
		}
	}
}

func TestInitRefusesInvalidFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                           "no backend is named",
		"--vllm 10.0.0.5:8000":                       "--vllm-models are required together",
		"--tasks-models video-a":                     "no backend is named",
		"--data a{b":                                 "must not have quotation marks",
		"--ollama-models a --openai":                 "--ollama-models are required together",
		"--vllm ftp://x --vllm-models a":             "the scheme is http or https",
		"--vllm https://x/?a --vllm-models a":        "a query or a fragment",
		"--vllm https://u@x --vllm-models a":         "it has a user",
		"--vllm x/v2 --vllm-models a":                "a path needs http:// or https://",
		"--anthropic-url x/y":                        "--anthropic-url \"x/y\" is not an address",
		"--tasks https://x/y --tasks-models image-a": "a path other than /v1",
		"--vllm x/y --vllm-models a":                 "is not an address",
		"--vllm x:1 --vllm-models a{b":               "is not a model name",
		"--ollama x:1 --ollama-models a*":            "is not a model name",
		"--tasks x:1 --tasks-models hunyuan":         "does not begin with video- or image-",
		"--openai --domain ai.example.com/path":      "is not an address",
		"--openai --domain http://ai.example":        "not encrypted",
		"--vllm x:1 --vllm-models a,a":               "price a is given twice",
	} {
		dir := t.TempDir()
		code, stdout, stderr := gatetest.Caddy(t, "", append([]string{"modelgate", "init", dir}, strings.Fields(args)...)...)
		if files, err := os.ReadDir(dir); code != 2 || !strings.Contains(stderr, want) || err != nil || len(files) > 0 {
			t.Errorf("%s: exit code %d, %d files: %s%s", args, code, len(files), stdout, stderr)
		}
	}
}

func TestInitSendsTheKeyOfAnOwnServer(t *testing.T) {
	for key, want := range map[string]bool{"": false, "own-1": true} {
		t.Setenv("VLLM_API_KEY", key)
		t.Setenv("OLLAMA_API_KEY", "of-the-vendor")
		dir := t.TempDir()
		code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "init", dir, "--vllm", "10.0.0.5:8000", "--vllm-models", "qwen3", "--ollama", "10.0.0.6:11434", "--ollama-models", "phi4")
		if code != 0 {
			t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
		}
		text, err1 := os.ReadFile(filepath.Join(dir, "Caddyfile"))          //nolint:gosec // of this test
		environment, err2 := os.ReadFile(filepath.Join(dir, "environment")) //nolint:gosec // of this test
		sent := strings.Contains(string(text), "header_up Authorization \"Bearer {env.VLLM_API_KEY}\"")
		set := strings.Contains(string(environment), "\nVLLM_API_KEY=own-1\n")
		if err1 != nil || err2 != nil || sent != want || set != want || strings.Contains(string(text)+string(environment), "OLLAMA_API_KEY") {
			t.Errorf("with the key %q:\n%s%s%v %v", key, text, environment, err1, err2)
		}
	}
}

func TestInitServesOtherAddressesWithAPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "init", dir, "--anthropic-url", "https://claude.example.com/proxy/",
		"--vllm", "https://openrouter.ai/api/v1", "--vllm-models", "qwen/qwen3 gpt-oss", "--tasks", "http://10.0.0.5/v1", "--tasks-models", "video-hunyuan-1.5")
	if code != 0 || !strings.Contains(stdout, `"model": "claude-sonnet-4-5"`) {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	environment, err := os.ReadFile(filepath.Join(dir, "environment")) //nolint:gosec // of this test
	if err != nil || !strings.Contains(string(environment), "\nVLLM_API_KEY=replace-me\n") {
		t.Errorf("the environment is %s, %v", environment, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "Caddyfile")) //nolint:gosec // of this test
	for _, words := range []string{
		"reverse_proxy https://claude.example.com {\n\t\t\trewrite /proxy{uri}\n", "price claude-haiku-4-5* {", "models claude-sonnet-4-5 claude-haiku-4-5\n",
		"@vllm modelgate_model qwen/qwen3 gpt-oss\n\t\treverse_proxy @vllm https://openrouter.ai {\n\t\t\trewrite /api{uri}\n\t\t\theader_up Authorization \"Bearer {env.VLLM_API_KEY}\"\n",
		"family F video-hunyuan-1.5\n",
	} {
		if err != nil || !strings.Contains(string(text), words) {
			t.Errorf("no %q in\n%s (%v)", words, text, err)
		}
	}
}
