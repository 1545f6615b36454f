package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
)

// printUsage prints a usage report. Tasks and uncollected costs have a column only if they
// are not all zero.
func printUsage(w *tabwriter.Writer, c *call, answer []byte) error {
	var list struct {
		Items []adminapi.UsageRow `json:"items"`
	}
	if json.Unmarshal(answer, &list) != nil {
		return errNotAdmin
	}
	if c.isSet("csv") {
		return adminapi.WriteUsageCSV(c.OutOrStdout(), list.Items)
	}
	by, _ := c.Flags().GetStringSlice("by")
	tasks := slices.ContainsFunc(list.Items, func(row adminapi.UsageRow) bool { return row.Tasks != 0 })
	lost := slices.ContainsFunc(list.Items, func(row adminapi.UsageRow) bool { return row.Lost != 0 })
	line := func(groups []string, calls, taskCount, input, output, cost, uncollected any) {
		cells := append(groups, fmt.Sprint(calls))
		if tasks {
			cells = append(cells, fmt.Sprint(taskCount))
		}
		cells = append(cells, words([]any{input, output, cost})...)
		if lost {
			cells = append(cells, fmt.Sprint(uncollected))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	line(strings.Split(strings.ToUpper(strings.Join(by, "\t")), "\t"), "CALLS", "TASKS", "INPUT", "OUTPUT", "COST", "UNCOLLECTED")
	for _, row := range list.Items {
		groups := make([]string, len(by))
		for i, group := range by {
			switch group {
			case "day":
				groups[i] = row.Day.String()
			case "user":
				groups[i] = row.User
			case "key":
				groups[i] = row.KeyID
			case "model":
				groups[i] = row.Model
			}
		}
		line(groups, row.Calls, row.Tasks, row.Tokens.AllInput(), row.Tokens.AllOutput(), row.Cost, row.Lost)
	}
	return nil
}
