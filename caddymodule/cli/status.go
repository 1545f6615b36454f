package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
)

func statusCommand() *cobra.Command {
	return command("status", "Shows whether the gateway takes calls, and how its store is", func(cmd *cobra.Command, _ []string) error {
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		var s adminapi.Status
		if err := c.call(cmd.Context(), http.MethodGet, "/modelgate/status", nil, &s); err != nil {
			return err
		}
		err = printed(cmd, s, func(w io.Writer) {
			state := "ready"
			if !s.Ready {
				state = "NOT READY: " + s.Reason
			}
			fmt.Fprintf(w, "state\t%s\ncaddy\t%s\nstore\t%s\n", state, s.Caddy, s.Store)
			fmt.Fprintf(w, "users\t%d\ncredentials in force\t%d\ncalls in flight\t%d\nmodels listed\t%d\n", s.Users, s.Credentials, s.Calls, len(s.Models))
			if len(s.Restricted) > 0 {
				fmt.Fprintf(w, "users restricted\t%s\n", strings.Join(s.Restricted, ", "))
			}
			fmt.Fprintf(w, "commits\t%d in %d batches, %d queued\n", s.Stats.Committed, s.Stats.Batches, s.Stats.Queued)
		})
		if err == nil && !s.Ready {
			err = errors.New("the gateway is not ready")
		}
		return err
	})
}
