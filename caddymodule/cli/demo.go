package cli

import (
	"context"
	"os"
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
	run, err := demo.Start(c.Context(), c.flag("listen"), data, c.ErrOrStderr())
	if err != nil {
		remove()
		return err
	}
	if err := c.printed(run, func(w *tabwriter.Writer, _ *call, _ []byte) error { return run.Introduce(w) }); err != nil {
		return err
	}
	select {} // until a signal ends the process
}
