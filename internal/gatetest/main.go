package gatetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// asCaddy is the environment variable that makes a test binary run as Caddy.
const asCaddy = "GATETEST_AS_CADDY"

// Main is the TestMain of packages whose tests call [Caddy].
func Main(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return // only after success; otherwise it ends the process
	}
	os.Exit(m.Run())
}

// Caddy runs a caddy command in a separate process with stdin, and returns its
// exit code and output.
func Caddy(t testing.TB, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), asCaddy+"=1", "HOME="+t.TempDir())
	cmd.Stdin = bytes.NewBufferString(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("caddy %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Command runs `caddy modelgate` with the admin endpoint of the Gate, like
// [Caddy].
func (g *Gate) Command(t testing.TB, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return Caddy(t, stdin, append(append([]string{"modelgate"}, args...), "--address", g.AdminAddress)...)
}
