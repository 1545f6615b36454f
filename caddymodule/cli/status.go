package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
)

// showStatus prints the status and fails if the gateway is not ready.
func showStatus(c *call) error {
	var status adminapi.Status
	if err := c.send(http.MethodGet, "/modelgate/status", &status); err != nil {
		return err
	}
	err := c.printed(status, decoded(func(w *tabwriter.Writer, s *adminapi.Status) {
		state := "ready"
		if !s.Ready {
			state = "NOT READY: " + s.Reason
		}
		fmt.Fprintf(w, "state\t%s\nversion\t%s\ncommit\t%s\ncaddy\t%s\nstore\t%s\n", state, s.Version, dash(s.Commit), s.Caddy, s.Store)
		more := ""
		if s.MoreUsers {
			more = "+"
		}
		fmt.Fprintf(w, "users\t%d%s\ncredentials in force\t%d\ncalls in flight\t%d\nmodels listed\t%d\n", s.Users, more, s.Credentials, s.Calls, len(s.Models))
		if len(s.Restricted) > 0 {
			fmt.Fprintf(w, "users restricted\t%s\n", strings.Join(s.Restricted, ", "))
		}
		live := 0
		for _, n := range s.Nodes {
			if n.State == adminapi.NodeLive {
				live++
			}
		}
		if len(s.Nodes) > 0 {
			fmt.Fprintf(w, "gateways of the store\t%d live\n", live)
		}
		fmt.Fprintf(w, "last backup\t%s\n", moment(s.LastBackup))
		fmt.Fprintf(w, "commits\t%d in %d batches, %d queued\n", s.Stats.Committed, s.Stats.Batches, s.Stats.Queued)
	}))
	if err == nil && !status.Ready {
		err = errors.New("the gateway is not ready")
	}
	return err
}

// showVersion prints the version and the commit of this program.
func showVersion(c *call) error {
	build := caddymodule.ReadBuild()
	return c.printed(build, fixed("modelgate\t%s\ncommit\t%s\ndate\t%s\ncaddy\t%s\ngo\t%s %s/%s\n",
		build.Version, dash(build.Commit), dash(build.Date), build.Caddy, build.Go, build.OS, build.Arch))
}

// checkBackends checks one backend, or each configured one. It fails if a backend would not
// accept a task, or if the named one cannot be checked.
func checkBackends(c *call) error {
	var names []string
	one, only := c.args["backend"]
	if only {
		names = []string{one}
	} else {
		var list struct{ Items []adminapi.Backend }
		if err := c.send(http.MethodGet, "/modelgate/backends", &list); err != nil {
			return err
		}
		for _, b := range list.Items {
			if b.Configured {
				names = append(names, b.Name)
			}
		}
	}
	checks := make([]adminapi.BackendCheck, len(names))
	var failed []string
	for i, name := range names {
		if err := c.send(http.MethodPost, "/modelgate/backends/"+url.PathEscape(name)+"/check", &checks[i]); err != nil {
			return err
		}
		if checks[i].State == adminapi.CheckFailed {
			failed = append(failed, name)
		}
	}
	err := c.printed(map[string]any{"items": checks}, rows("NAME\tSTATE\tTOOK\tDETAIL", func(check *adminapi.BackendCheck) []any {
		return []any{check.Name, check.State, fmt.Sprintf("%d ms", check.TookMS), dash(check.Detail)}
	}))
	switch {
	case err != nil:
		return err
	case len(failed) > 0:
		return fmt.Errorf("the check of %s failed", strings.Join(failed, ", "))
	case only && checks[0].State == adminapi.CheckSkipped:
		return errExit{exitRefused, errors.New("this backend cannot be checked")}
	}
	return nil
}
