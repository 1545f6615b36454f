package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
)

// paymentsCommands, salesReport and ledgerCommands are the commands for bookkeeping.
var (
	paymentsCommands = command{use: "payments", short: "Payments that payment services have collected from users", subcommands: []command{
		{
			use: "report", short: "Sums up payments, refunds and disputes by the UTC day on which they were booked, to compare with payouts",
			request: "GET /modelgate/payments", edit: oneForm, print: printPayments,
			flags: []flag{
				{name: "by", value: []string{"day", "provider"}, help: "Group by: day, provider, or both with a comma", to: "group"},
				fromFlag, toFlag,
				{name: "csv", value: false, help: "Print comma-separated values", local: true},
			},
		},
		salesReport,
	}}

	salesReport = command{
		use: "sales", short: "Sums up what users bought: top-ups, and plans from the wallet",
		request: "GET /modelgate/sales", edit: oneForm, print: printSales,
		flags: []flag{
			{name: "by", value: []string{}, help: "Group by: day", to: "group"},
			fromFlag, toFlag,
			{name: "csv", value: false, help: "Print comma-separated values", local: true},
		},
	}

	ledgerCommands = command{use: "ledger", short: "The ledger of all accounts", subcommands: []command{
		{
			use: "export", short: "Prints all transfers, one line for each account that a transfer changes",
			request: "GET /modelgate/ledger", run: exportLedger,
			flags: []flag{
				fromFlag, toFlag,
				{name: "csv", value: true, help: "Print comma-separated values, which is the only form", local: true},
			},
		},
	}}

	fromFlag = flag{name: "from", value: "", help: "First UTC day, as 2026-11-01, or start time, as 2026-11-01T14:00:00Z"}
	toFlag   = flag{name: "to", value: "", help: "Last UTC day, or end time"}
)

var printPayments = orCSV(adminapi.WritePaymentsCSV, rows("DAY\tPROVIDER\tCURRENCY\tORDERS\tGROSS\tREFUNDS\tDISPUTES\tRESTORED\tNET\tCOUNT", func(row *adminapi.PaymentRow) []any {
	return []any{dash(row.Day.String()), dash(row.Provider), row.Currency, row.Orders, row.Gross, row.Refunds, row.Disputes, row.Restored, row.Net, row.Count}
}))

var printSales = orCSV(adminapi.WriteSalesCSV, rows("DAY\tKIND\tPLAN\tTITLE\tCURRENCY\tCOUNT\tAMOUNT", func(row *adminapi.SaleRow) []any {
	plan := "-"
	if row.PlanID != 0 {
		plan = strconv.FormatInt(row.PlanID, 10)
	}
	return []any{dash(row.Day.String()), row.Kind, plan, dash(row.Title), row.Currency, row.Count, row.Amount}
}))

var printUsage = orCSV(adminapi.WriteUsageCSV, usageTable)

// usageTable prints a usage report. Tasks and uncollected costs have a column only if they
// are not all zero.
func usageTable(w *tabwriter.Writer, c *call, answer []byte) error {
	var list adminapi.Page[adminapi.UsageRow]
	if json.Unmarshal(answer, &list) != nil {
		return errNotAdmin
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

// exportLedger copies the export to standard output. It returns an error if the export is
// incomplete.
func exportLedger(c *call) error {
	if !c.isSet("csv") || c.isSet("json") {
		return errUsage("the export has only the form --csv")
	}
	if err := c.prepare(); err != nil {
		return err
	}
	client, err := newClient(c.Command)
	if err != nil {
		return err
	}
	path, _ := c.target()
	resp, err := client.send(c.Context(), c.method, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(c.OutOrStdout(), resp.Body); err != nil {
		return fmt.Errorf("the export is incomplete: %w", err)
	}
	return nil
}
