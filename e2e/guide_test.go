package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// shellBlock matches a block of shell commands with an optional mark that excludes it.
var shellBlock = regexp.MustCompile("(?ms)^(<!-- not run: .+? -->\n)?```(?:sh|shell|bash|console)\n(.*?)^```$")

// demoCommand matches a block that starts the demo, which runs until it is stopped.
var demoCommand = regexp.MustCompile(`^(?:go run \./cmd/caddy|caddy) modelgate demo(.*)\n$`)

// shellPrelude defines the commands of the guide that run Caddy, so that they run this binary.
const shellPrelude = `caddy() { %s=1 %q "$@"; }
go() { [ "$1 $2" = "run ./cmd/caddy" ] && shift 2 && caddy "$@"; }
`

// TestTheCommandsOfGettingStartedWorkInAShell runs the shell blocks of
// docs/guide/getting-started.md from top to bottom, in one shell, with the demo that the
// guide starts. Blocks with the mark <!-- not run: reason --> are left out.
func TestTheCommandsOfGettingStartedWorkInAShell(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	guide, err := os.ReadFile("../docs/guide/getting-started.md")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var run demoRun
	script, blocks := fmt.Sprintf(shellPrelude, asCaddy, self), 0
	for _, found := range shellBlock.FindAllStringSubmatch(string(guide), -1) {
		if found[1] != "" {
			continue
		}
		blocks++
		if demo := demoCommand.FindStringSubmatch(found[2]); demo != nil {
			_, run = startDemo(t, strings.Fields(demo[1])...)
			continue
		}
		script += found[2]
	}
	if blocks < 2 || run.Admin == "" {
		t.Fatalf("the guide has %d shell blocks; the demo is %+v", blocks, run)
	}
	home := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), leaseLength)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-exc", script) //nolint:gosec // the commands of the guide
	shell.Dir = home
	shell.Env = append(os.Environ(), "HOME="+home, "CADDY_ADMIN="+run.Admin, "BASE="+run.URL, "KEY="+run.Key, "TOKEN="+run.Token, "PASSWORD="+run.Password)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
