package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
)

func taskCommands() []*cobra.Command {
	list := command("list", "Lists tasks, latest first", listTasks)
	list.Flags().String("user", "", "Only those of this user")
	list.Flags().String("status", "", "Only those that are queued, pending, in_progress, success or failed")
	addListFlags(list, "The last task of the list before: goes on behind it")
	return []*cobra.Command{
		list,
		command("show <task>", "Shows a task", func(cmd *cobra.Command, args []string) error {
			return onTask(cmd, http.MethodGet, args[0], "")
		}),
		command("retry <task>", "Has a backend asked now for a task that it has, however long it was to wait", func(cmd *cobra.Command, args []string) error {
			return onTask(cmd, http.MethodPost, args[0], "/retry")
		}),
		command("cancel <task>", "Ends a task without a charge: at once while it waits, later if its backend confirms that it makes nothing", func(cmd *cobra.Command, args []string) error {
			if err := confirmed(cmd, fmt.Sprintf("Cancel task %s for good?", args[0])); err != nil {
				return err
			}
			return onTask(cmd, http.MethodPost, args[0], "/cancel")
		}),
		watchCommand(),
	}
}

// onTask sends a request whose answer is a task, and prints it.
func onTask(cmd *cobra.Command, method, id, what string) error {
	return request(cmd, method, "/modelgate/tasks/"+url.PathEscape(id)+what, nil, printTask)
}

// printTask prints what there is to say of a task, a line for each thing.
func printTask(w io.Writer, t *adminapi.Task) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	at := func(name string, seconds int64) {
		if seconds != 0 {
			line(name, moment(seconds))
		}
	}
	line("task", t.ID)
	line("status", t.State())
	line("model", dash(t.Model))
	line("user", dash(t.User)+", key "+t.Key)
	line("backend", t.Backend)
	line("hand-over", string(t.Delivery))
	if t.Ref != nil {
		line("job there", dash(t.Ref.ID))
	}
	if t.SessionID != "" {
		line("session id", dash(t.SessionID))
	}
	at("submitted", t.CreatedAt)
	at("completed", t.CompletedAt)
	at("asked last", t.Polled)
	if t.Failing > 0 {
		line("without an answer", counted(t.Failing, "time", "times"))
	}
	if t.UnknownStatus != "" {
		line("unknown word", dash(t.UnknownStatus))
	}
	at("made, not copied since", t.Made)
	if t.CompletedAt == 0 {
		if t.Due != t.Deadline { // what waits for its slot is not looked at before
			at("looked at next", t.Due)
		}
		at("fails if not over", t.Deadline)
		line("held", t.Held.String())
	} else {
		line("charged", t.Charged.String())
	}
	if t.VendorCost.Amount != "" {
		line("its backend took", dash(t.VendorCost.Amount+" "+t.VendorCost.Unit))
	}
	if t.Error != nil {
		line("failed", string(t.Error.Reason)+": "+dash(t.Error.Message))
	}
	line("loss", t.Loss)
	if t.Result != nil {
		for _, link := range t.Result.URLs {
			line("result", dash(link))
		}
	}
}

func listTasks(cmd *cobra.Command, _ []string) error {
	query := url.Values{}
	for _, name := range []string{"user", "status"} {
		word, _ := cmd.Flags().GetString(name)
		query.Set(name, word)
	}
	return listPages(cmd, "/modelgate/tasks", query, func(w io.Writer, list []adminapi.Task) {
		fmt.Fprintln(w, "TASK\tUSER\tMODEL\tBACKEND\tSTATUS\tPROGRESS\tSUBMITTED\tCOMPLETED\tCHARGED")
		for _, t := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, dash(t.User), dash(t.Model), t.Backend,
				t.Status, t.Progress, moment(t.CreatedAt), moment(t.CompletedAt), t.Charged)
		}
	})
}

// optional makes the argument of a command one that may be left out; its use
// line has it in brackets.
func optional(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if len(given) > 1 {
			return misused(cmd, fmt.Errorf("%d arguments given, at most 1 is taken", len(given)))
		}
		return nil
	}
	return cmd
}

// maxLimit bounds what one command lists.
const maxLimit = 10_000

// addListFlags gives a command the flags of a list that [listPages] prints.
func addListFlags(cmd *cobra.Command, after string) {
	cmd.Flags().Int("limit", 20, "How many, at most "+strconv.Itoa(maxLimit))
	cmd.Flags().String("after", "", after)
}

// listPages prints a list that the server gives in pages, as far as --limit goes.
// What is filtered out may leave a page empty, so that a list ends only where
// there is no next page.
func listPages[T any](cmd *cobra.Command, path string, query url.Values, words func(io.Writer, []T)) error {
	limit, _ := cmd.Flags().GetInt("limit")
	if limit < 1 || limit > maxLimit {
		return errUsage("--limit is 1 to %d, this is %d", maxLimit, limit)
	}
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	list := adminapi.Page[T]{Items: []T{}}
	list.Next, _ = cmd.Flags().GetString("after")
	for first := true; first || list.Next != "" && len(list.Items) < limit; first = false {
		query.Set("after", list.Next)
		query.Set("limit", strconv.Itoa(min(limit-len(list.Items), adminapi.MaxPage)))
		var one adminapi.Page[T]
		if err := c.call(cmd.Context(), http.MethodGet, path+"?"+query.Encode(), nil, &one); err != nil {
			return err
		}
		list.Items, list.Next = append(list.Items, one.Items...), one.Next
	}
	return printed(cmd, list, func(w io.Writer) {
		words(w, list.Items)
		if list.Next != "" {
			fmt.Fprintf(w, "There are more: --after %s\n", list.Next)
		}
	})
}
