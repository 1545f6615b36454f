package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/internal/task"
)

func callbackCommands() []*cobra.Command {
	deliveries := command("deliveries <user>", "Lists the callbacks of a user's tasks, latest first", listDeliveries)
	addListFlags(deliveries, "The task of the last callback of the list before: goes on behind it")
	return []*cobra.Command{
		deliveries,
		command("redeliver <task>", "Sends the callback of a task again, in a new round of attempts; for 7 days after it was delivered or given up", redeliver),
	}
}

func listDeliveries(cmd *cobra.Command, args []string) error {
	query := url.Values{"user": {args[0]}}
	return listPages(cmd, "/modelgate/callbacks", query, func(w io.Writer, list []task.Callback) {
		printDeliveries(w, list...)
	})
}

func redeliver(cmd *cobra.Command, args []string) error {
	path := "/modelgate/callbacks/" + url.PathEscape(args[0]) + "/redeliver"
	return request(cmd, http.MethodPost, path, nil, func(w io.Writer, delivery *task.Callback) { printDeliveries(w, *delivery) })
}

func printDeliveries(w io.Writer, list ...task.Callback) {
	fmt.Fprintln(w, "ID\tTASK\tKEY\tSTATE\tATTEMPTS\tLAST\tNEXT\tANSWER\tURL")
	for _, d := range list {
		answer := "-"
		switch {
		case d.Trouble != "":
			answer = d.Trouble
		case d.Status != 0:
			answer = strconv.Itoa(d.Status)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
			d.ID, d.Task, d.Key, d.State, d.Attempts, moment(d.Last), moment(d.Next), dash(answer), dash(d.URL))
	}
}
