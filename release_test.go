package modelgate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheReleaseHasSixPlatformsWithChecksums runs deploy/release with a mock of go, which
// writes its arguments into the output file.
func TestTheReleaseHasSixPlatformsWithChecksums(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "git", "sha256sum"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	out, path := filepath.Join(dir, "dist"), filepath.Join(dir, "bin")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	mockGo := `#!/bin/sh
all="$GOOS $GOARCH $CGO_ENABLED $*"
while [ "$1" != -o ]; do shift; done
echo "$all" >"$2"
`
	if err := os.WriteFile(filepath.Join(path, "go"), []byte(mockGo), 0o700); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	script := exec.CommandContext(t.Context(), "deploy/release", out)
	script.Env = append(os.Environ(), "PATH="+path+string(filepath.ListSeparator)+os.Getenv("PATH"), "VERSION=v9.9.9")
	if text, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = out
	if text, err := check.CombinedOutput(); err != nil || strings.Count(string(text), ": OK\n") != 6 {
		t.Errorf("%v\n%s", err, text)
	}
	var flags string
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64.exe", "windows-arm64.exe"} {
		text, err := os.ReadFile(filepath.Join(out, "modelgate-v9.9.9-"+platform)) //nolint:gosec // of this test
		if err != nil {
			t.Fatal(err)
		}
		system, architecture, _ := strings.Cut(strings.TrimSuffix(platform, ".exe"), "-")
		words := strings.Join([]string{system, architecture, "0 build -trimpath -buildvcs=false -ldflags "}, " ")
		if !strings.HasPrefix(string(text), words) || !strings.HasSuffix(string(text), " ./cmd/caddy\n") {
			t.Errorf("the arguments for %s are %s", platform, text)
		}
		flags, _, _ = strings.Cut(strings.TrimPrefix(string(text), words), " -o ")
	}
	if testing.Short() {
		t.Skip("links a whole Caddy")
	}

	binary := filepath.Join(dir, "caddy.exe")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", flags, "-o", binary, "./cmd/caddy") //nolint:gosec // the flags of the script
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, c := range [][]string{
		{"version", `^modelgate v9\.9\.9 \([0-9a-f]{12}(-dirty)?, \d{4}-\d\d-\d\d\), Caddy v2\.\d+\.\d+ `},
		{"modelgate version", `^modelgate  v9\.9\.9\ncommit     [0-9a-f]{12}(-dirty)?\ndate       \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\ncaddy      v2\.\d+\.\d+\ngo         go1\.`},
	} {
		text, err := exec.CommandContext(t.Context(), binary, strings.Fields(c[0])...).CombinedOutput() //nolint:gosec // the binary under test
		if err != nil || !regexp.MustCompile(c[1]).Match(text) {
			t.Errorf("%s: %v\n%s", c[0], err, text)
		}
	}
}
