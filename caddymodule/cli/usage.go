package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/usage"
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
		return writeUsageCSV(c.OutOrStdout(), list.Items)
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

// writeUsageCSV writes every column for every grouping, so that programs can rely on the
// columns.
func writeUsageCSV(out io.Writer, rows []adminapi.UsageRow) error {
	w := csv.NewWriter(out)
	_ = w.Write(append(append([]string{"day", "user_id", "user", "key_id", "model", "calls"}, usage.KindNames()...), "cost", "uncollected", "tasks"))
	for _, row := range rows {
		day := ""
		if row.Day != "" {
			day = row.Day.String()
		}
		line := append(make([]string, 0, 9+usage.Kinds), day, row.UserID, adminapi.PlainCell(row.User), row.KeyID, adminapi.PlainCell(row.Model), strconv.FormatInt(row.Calls, 10))
		for _, n := range row.Tokens.ByKind() {
			line = append(line, strconv.FormatInt(n, 10))
		}
		_ = w.Write(append(line, row.Cost.String(), row.Lost.String(), strconv.FormatInt(row.Tasks, 10)))
	}
	w.Flush()
	return w.Error()
}
