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

// asCaddy is set in the environment of a test binary that is to be Caddy.
const asCaddy = "GATETEST_AS_CADDY"

// Main is the TestMain of packages whose tests call [Caddy].
func Main(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return // to a success; or else it has ended the process
	}
	os.Exit(m.Run())
}

// Caddy runs a command line of caddy in a process of its own, with stdin, and
// returns its exit code and what it printed.
func Caddy(t testing.TB, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
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

// Command runs `caddy modelgate` with the admin endpoint of the gate, as [Caddy] does.
func (g *Gate) Command(t testing.TB, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return Caddy(t, stdin, append(append([]string{"modelgate"}, args...), "--address", g.AdminAddress)...)
}
