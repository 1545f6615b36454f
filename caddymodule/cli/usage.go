package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

func usageCommands() []*cobra.Command {
	report := command("report", "Sums up what calls came to, each for the UTC day on which it came, and tasks, each for that on which it was charged", reportUsage)
	report.Flags().StringSlice("by", []string{"day"}, "What to break it down by: day, user, key, model; several with commas")
	report.Flags().String("user", "", "Only of this user")
	report.Flags().String("from", "", "First day, as 2026-11-01")
	report.Flags().String("to", "", "Last day, as 2026-11-30")
	report.Flags().Bool("csv", false, "Print comma-separated values")
	return []*cobra.Command{report}
}

func reportUsage(cmd *cobra.Command, _ []string) error {
	asCSV, _ := cmd.Flags().GetBool("csv")
	if asJSON, _ := cmd.Flags().GetBool("json"); asCSV && asJSON {
		return errUsage("--csv and --json are two forms of one answer: give one of them")
	}
	by, _ := cmd.Flags().GetStringSlice("by")
	query := url.Values{"group": by}
	for _, name := range []string{"user", "from", "to"} {
		value, _ := cmd.Flags().GetString(name)
		query.Set(name, value)
	}
	c, err := newClient(cmd)
	if err != nil {
		return err
	}
	var list items[adminapi.UsageRow]
	if err := c.call(cmd.Context(), http.MethodGet, "/modelgate/usage?"+query.Encode(), nil, &list); err != nil {
		return err
	}
	if asCSV {
		return writeUsageCSV(cmd.OutOrStdout(), list.Items)
	}
	return printed(cmd, list, func(w io.Writer) {
		tasks := slices.ContainsFunc(list.Items, func(row adminapi.UsageRow) bool { return row.Tasks != 0 })
		lost := slices.ContainsFunc(list.Items, func(row adminapi.UsageRow) bool { return row.Lost != 0 })
		fmt.Fprint(w, strings.ToUpper(strings.Join(by, "\t"))+"\tCALLS\t")
		if tasks {
			fmt.Fprint(w, "TASKS\t")
		}
		fmt.Fprint(w, "INPUT\tOUTPUT\tCOST")
		if lost {
			fmt.Fprint(w, "\tUNCOLLECTED")
		}
		fmt.Fprintln(w)
		for _, row := range list.Items {
			for _, group := range by {
				fmt.Fprint(w, usageCell(&row, group)+"\t")
			}
			fmt.Fprintf(w, "%d\t", row.Calls)
			if tasks {
				fmt.Fprintf(w, "%d\t", row.Tasks)
			}
			fmt.Fprintf(w, "%d\t%d\t%s", row.Tokens.AllInput(), row.Tokens.AllOutput(), row.Cost)
			if lost {
				fmt.Fprint(w, "\t"+row.Lost.String())
			}
			fmt.Fprintln(w)
		}
	})
}

// usageCell is what a row says under a heading.
func usageCell(r *adminapi.UsageRow, group string) string {
	switch group {
	case "day":
		return r.Day.String()
	case "user":
		return r.User
	case "key":
		return r.KeyID
	}
	return r.Model
}

// writeUsageCSV writes every column, whether the report is broken down by it or
// not, so that what reads it need not care.
func writeUsageCSV(out io.Writer, rows []adminapi.UsageRow) error {
	w := csv.NewWriter(out)
	_ = w.Write(append(append([]string{"day", "user_id", "user", "key_id", "model", "calls"}, usage.KindNames()...), "cost", "uncollected", "tasks"))
	for _, row := range rows {
		day := ""
		if row.Day != "" {
			day = row.Day.String()
		}
		line := append(make([]string, 0, 9+usage.Kinds), day, row.UserID, plain(row.User), row.KeyID, plain(row.Model), strconv.FormatInt(row.Calls, 10))
		for _, n := range row.Tokens.ByKind() {
			line = append(line, strconv.FormatInt(n, 10))
		}
		_ = w.Write(append(line, row.Cost.String(), row.Lost.String(), strconv.FormatInt(row.Tasks, 10)))
	}
	w.Flush()
	return w.Error()
}

// plain keeps a spreadsheet from taking a name for a formula.
func plain(name string) string {
	if name != "" && slices.Contains([]byte("=+-@\t\r"), name[0]) {
		return "'" + name
	}
	return name
}
