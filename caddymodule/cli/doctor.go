package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/caddymodule/doctor"
)

func doctorCommand() *cobra.Command {
	cmd := command("doctor", "Looks for what is dangerous or broken in a configuration, the running one or --config's", func(cmd *cobra.Command, _ []string) error {
		config, err := examinedConfig(cmd)
		if err != nil {
			return err
		}
		findings := doctor.Examine(config)
		if file, _ := cmd.Flags().GetString("config"); file == "" {
			findings = append(findings, examineRunning(cmd)...)
		}
		err = printed(cmd, map[string]any{"findings": findings}, func(w io.Writer) {
			for _, f := range findings {
				fmt.Fprintf(w, "%s\t%s\t%s\n\t\t→ %s\n", f.Level, f.Where, f.What, f.Remedy)
			}
			if len(findings) == 0 {
				fmt.Fprintln(w, "nothing found")
			}
		})
		if err == nil && slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Level == "error" }) {
			err = fmt.Errorf("the doctor found what must be mended")
		}
		return err
	})
	cmd.Flags().String("config", "", "A configuration file instead of the running configuration")
	cmd.Flags().String("adapter", "", "The adapter of that file (default: caddyfile for files named Caddyfile*)")
	return cmd
}

// examinedConfig returns the configuration to look at, as decoded JSON.
func examinedConfig(cmd *cobra.Command) (config any, err error) {
	file, _ := cmd.Flags().GetString("config")
	if file == "" {
		c, err := newClient(cmd)
		if err != nil {
			return nil, err
		}
		err = c.call(cmd.Context(), http.MethodGet, "/config/", nil, &config)
		return config, err
	}
	adapter, _ := cmd.Flags().GetString("adapter")
	if _, err := os.Stat(file); err != nil {
		return nil, errExit{exitNotFound, err}
	}
	raw, _, _, err := caddycmd.LoadConfig(file, adapter)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(raw, &config)
	return config, err
}

// examineRunning looks for what a gateway that runs tells of itself. One that does
// not answer has nothing to tell: its configuration has been examined.
func examineRunning(cmd *cobra.Command) []doctor.Finding {
	c, err := newClient(cmd)
	if err != nil {
		return nil
	}
	var s adminapi.Status
	if err := c.call(cmd.Context(), http.MethodGet, "/modelgate/status", nil, &s); err != nil || len(s.Restricted) == 0 {
		return nil
	}
	return []doctor.Finding{{
		Level: "warning", Where: "apps.modelgate.uncollected_tolerance",
		What:   fmt.Sprintf("calls of %d users came to more than could be collected, and are made one at a time: %s", len(s.Restricted), strings.Join(s.Restricted, ", ")),
		Remedy: "look at `usage report --by user,model` for what they call, and whether context and max_output of its price hold; the restriction ends by itself",
	}}
}
