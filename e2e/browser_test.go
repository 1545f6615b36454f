package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// browserRequired is the environment variable that, set to "required", makes a
// browser test fail instead of skip if something it needs is missing.
const browserRequired = "CI_BROWSER"

// browserTimeout is the longest duration of the script on a busy machine.
const browserTimeout = 10 * time.Minute

// missing skips a test because something is missing, or fails it if
// browserRequired is set.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(browserRequired) == "required" {
		t.Fatalf("%s, but %s is set to required", what, browserRequired)
	}
	t.Skipf("%s: the test needs a real browser; .ci/run installs it if possible", what)
}

// findChromium returns the path of Chromium.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "Chromium is missing")
	return ""
}

// findNode returns the path of a node that can run the scripts.
func findNode(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node is missing")
	}
	if exec.CommandContext(t.Context(), node, "-e", "process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)").Run() != nil {
		missing(t, "node is older than version 20")
	}
	if _, err := os.Stat(filepath.Join("browser", "node_modules", "playwright-core")); err != nil {
		missing(t, "`npm ci` has not been run in e2e/browser")
	}
	return node
}

// TestTheConsoleInChromium runs the script of the directory browser.
// Each of its steps is a subtest.
func TestTheConsoleInChromium(t *testing.T) {
	chromium := findChromium(t)
	node := findNode(t)
	t.Parallel()
	g, secure := newConsoleGateway(t), secureGateway(t)
	order, err := json.Marshal(map[string]string{
		"origin": g.Origin(), "secure": secure.Origin(), "elsewhere": pageOf(t, "localhost"), "foreign": pageOf(t, "127.0.0.1"), "executablePath": chromium,
	})
	if err != nil {
		t.Fatal(err)
	}
	secrets := runScript(t, node, "walk.mjs", order, func(found []string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.secrets = append(g.secrets, found...)
	})
	if secrets == 0 && !t.Failed() {
		t.Error("the script has reported no secrets to search for")
	}
}

// runScript runs a script of the directory browser with its input, and returns how many secrets it
// has reported to keep.
func runScript(t *testing.T, node, script string, order []byte, keep func([]string)) (secrets int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, script)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = "browser", bytes.NewReader(order), &stderr
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets the script stop the browser
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	steps, secrets := readSteps(t, out, keep)
	if err := cmd.Wait(); err != nil && !t.Failed() || steps == 0 {
		t.Errorf("the script ended with %v after %d steps:\n%s", err, steps, stderr.Bytes())
	}
	return secrets
}

// readSteps runs each line of the script's output as a subtest.
func readSteps(t *testing.T, out io.Reader, keep func([]string)) (steps, secrets int) {
	t.Helper()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Step    string
			OK      bool
			Error   string
			Took    int // milliseconds
			Secrets []string
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("the script wrote %q", lines.Bytes())
			continue
		}
		if len(line.Secrets) > 0 {
			secrets += len(line.Secrets)
			keep(line.Secrets)
			continue
		}
		steps++
		t.Run(line.Step, func(t *testing.T) {
			t.Logf("%d ms", line.Took)
			if !line.OK {
				t.Error(line.Error)
			}
		})
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return steps, secrets
}

// secureGateway starts a gateway that serves https with a self-signed
// certificate.
func secureGateway(t *testing.T) *gateway {
	t.Helper()
	b := newBackend(t, answerCalls)
	s := consoleSite(b)
	s.Secure = true
	g := newGateway(t, s, b)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	itself := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, itself, itself, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(filepath.Join(g.Dir, "certificate.pem"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	return g
}

// pageOf serves an empty page of another site under a name of this machine, and
// returns its URL.
func pageOf(t *testing.T, host string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>Another page</title><body></body>")
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + net.JoinHostPort(host, port)
}
