package cli_test

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestTheDemoColorsOnlyTerminals runs a demo whose output is not a terminal.
func TestTheDemoColorsOnlyTerminals(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no interrupt")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	demo := exec.CommandContext(t.Context(), program, "modelgate", "demo", "--json")
	demo.Env = append(os.Environ(), "GATETEST_AS_CADDY=1", "HOME="+t.TempDir())
	var log strings.Builder
	demo.Stderr = &log
	stdout, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(stdout).Scan() {
		t.Error("the demo printed nothing")
	}
	if err := demo.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := demo.Wait(); err != nil || !strings.Contains(log.String(), "exiting") || strings.Contains(log.String(), "\x1b[") {
		t.Errorf("%v, the log is %q", err, log.String())
	}
}

func TestTheDemoRefusesAnInvalidAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"8080", "127.0.0.1:99999", "[::1:80"} {
		if code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "demo", "--listen", address); code != 2 || !strings.Contains(stderr, "--listen") {
			t.Errorf("%s: exit code %d: %s%s", address, code, stdout, stderr)
		}
	}
}
