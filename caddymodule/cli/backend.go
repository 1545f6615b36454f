package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
)

func backendCommands() []*cobra.Command {
	check := optional(command("check [backend]", "Asks a backend, or each that is configured, whether it would take a task; this costs nothing", checkBackends))
	return []*cobra.Command{
		command("list", "Lists the backends, and what they have to do", listBackends),
		check,
		command("drain <backend>", "Gives a backend no more tasks, over restarts too: they wait; those that it has run on", setBackend),
		command("enable <backend>", "Gives a drained backend tasks again", setBackend),
	}
}

func backendPath(backend, what string) string {
	return "/modelgate/backends/" + url.PathEscape(backend) + what
}

func listBackends(cmd *cobra.Command, _ []string) error {
	return request(cmd, http.MethodGet, "/modelgate/backends", nil, func(w io.Writer, list *items[adminapi.Backend]) {
		printBackends(w, list.Items...)
	})
}

func setBackend(cmd *cobra.Command, args []string) error {
	return request(cmd, http.MethodPost, backendPath(args[0], "/"+cmd.Name()), nil, func(w io.Writer, backend *adminapi.Backend) {
		printBackends(w, *backend)
	})
}

func printBackends(w io.Writer, backends ...adminapi.Backend) {
	fmt.Fprintln(w, "NAME\tADAPTER\tMODELS\tRUNNING\tWAITING\tOLDEST WAITS SINCE\tSTATE")
	for _, b := range backends {
		running := strconv.FormatInt(b.Running, 10)
		if b.MaxRunning > 0 {
			running += fmt.Sprintf(" of %d", b.MaxRunning)
		}
		waiting := strconv.FormatInt(b.Waiting, 10)
		if b.Deferred > 0 {
			waiting += fmt.Sprintf(", %d of them tried again later", b.Deferred)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			b.Name, dash(b.Adapter), dash(strings.Join(words(b.Models), ",")), running, waiting, moment(b.Oldest), backendState(&b))
	}
}

// backendState returns in words whether a backend gets tasks.
func backendState(b *adminapi.Backend) string {
	var words []string
	for _, is := range []struct {
		so   bool
		word string
	}{{b.Drained, "drained"}, {!b.Configured, "not configured"}, {b.Busy, "busy"}} {
		if is.so {
			words = append(words, is.word)
		}
	}
	if len(words) == 0 {
		return "enabled"
	}
	return strings.Join(words, ", ")
}

// checkBackends ends with 1 when a backend would not take a task, and with 4 when
// the one that was named cannot be asked.
func checkBackends(cmd *cobra.Command, args []string) error {
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	names := args
	if len(names) == 0 {
		if names, err = configured(cmd.Context(), c); err != nil {
			return err
		}
	}
	list := items[adminapi.BackendCheck]{make([]adminapi.BackendCheck, len(names))}
	var failed []string
	for i, name := range names {
		if err := c.call(cmd.Context(), http.MethodPost, backendPath(name, "/check"), nil, &list.Items[i]); err != nil {
			return err
		}
		if list.Items[i].State == adminapi.CheckFailed {
			failed = append(failed, name)
		}
	}
	err = printed(cmd, list, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tSTATE\tTOOK\tDETAIL")
		for _, check := range list.Items {
			fmt.Fprintf(w, "%s\t%s\t%d ms\t%s\n", check.Name, check.State, check.TookMS, dash(check.Detail))
		}
	})
	switch {
	case err != nil:
		return err
	case len(failed) > 0:
		return fmt.Errorf("the check of %s failed", strings.Join(failed, ", "))
	case len(args) > 0 && list.Items[0].State == adminapi.CheckSkipped:
		return errExit{exitRefused, errors.New("this backend cannot be checked")}
	}
	return nil
}

// configured returns the names of the backends that are configured.
func configured(ctx context.Context, c *client) (names []string, err error) {
	var list items[adminapi.Backend]
	err = c.call(ctx, http.MethodGet, "/modelgate/backends", nil, &list)
	for _, b := range list.Items {
		if b.Configured {
			names = append(names, b.Name)
		}
	}
	return names, err
}
