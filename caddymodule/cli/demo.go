package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule/demo"
)

func runDemo(c *call) error {
	caddy.TrapSignals()
	data, remove := c.flag("data"), func() {}
	if data == "" {
		temp, err := os.MkdirTemp("", "modelgate-demo-")
		if err != nil {
			return err
		}
		data, remove = temp, func() { _ = os.RemoveAll(temp) }
		caddy.OnExit(func(context.Context) { remove() })
	}
	run, err := demo.Start(c.Context(), c.flag("listen"), data, c.ErrOrStderr(), colored(c.ErrOrStderr()))
	if err != nil {
		remove()
		if _, malformed := errors.AsType[*net.AddrError](err); malformed {
			return errUsage("%w", err)
		}
		return err
	}
	if err := c.printed(run, func(w *tabwriter.Writer, _ *call, _ []byte) error {
		return run.Introduce(w, program(), colored(c.OutOrStdout()))
	}); err != nil {
		return err
	}
	select {} // until a signal ends the process
}

// program returns the shell command that runs this program again. `go run` removes its binary, so
// for it the command is `go run` again.
func program() string {
	if name := filepath.ToSlash(os.Args[0]); !strings.Contains(name, "/go-build") {
		return name
	}
	return "go run ./cmd/caddy"
}

// colored reports whether w is a terminal whose user has not disabled colors
// (https://no-color.org).
func colored(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
