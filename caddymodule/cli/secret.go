package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule"
)

func secretCommands() []*cobra.Command {
	return []*cobra.Command{
		command("rotate", "Seals the secrets of the store by a new master key: one that is drawn into the key file, or the first of the configuration", rotateSecret),
	}
}

func rotateSecret(cmd *cobra.Command, _ []string) error {
	if err := confirmed(cmd, "Change the master key? A copy of the one before no longer opens this store."); err != nil {
		return err
	}
	return request(cmd, http.MethodPost, "/modelgate/secret/rotate", nil, func(w io.Writer, done *caddymodule.KeyRotation) {
		fmt.Fprintf(w, "%s sealed anew.\n", counted(done.Resealed, "secret was", "secrets were"))
		if done.KeyFile != "" {
			fmt.Fprintf(w, "The new key stands in %s; make a copy of it, apart from those of the store.\n", done.KeyFile)
			return
		}
		if done.Single {
			fmt.Fprintln(w, "The configuration has one master key: to change it, put a new one before it, reload, and rotate.")
			return
		}
		fmt.Fprintln(w, "The keys after the first can be taken out of the configuration.")
	})
}
