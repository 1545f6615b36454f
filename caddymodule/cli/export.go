package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
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

var paymentRows = rows("DAY\tPROVIDER\tCURRENCY\tORDERS\tGROSS\tREFUNDS\tDISPUTES\tRESTORED\tNET\tCOUNT", func(row *adminapi.PaymentRow) []any {
	return []any{dash(row.Day.String()), dash(row.Provider), row.Currency, row.Orders, row.Gross, row.Refunds, row.Disputes, row.Restored, row.Net, row.Count}
})

func printPayments(w *tabwriter.Writer, c *call, answer []byte) error {
	if !c.isSet("csv") {
		return paymentRows(w, c, answer)
	}
	var list struct {
		Items []adminapi.PaymentRow `json:"items"`
	}
	if json.Unmarshal(answer, &list) != nil {
		return errNotAdmin
	}
	return adminapi.WritePaymentsCSV(c.OutOrStdout(), list.Items)
}

var saleRows = rows("DAY\tKIND\tPLAN\tTITLE\tCURRENCY\tCOUNT\tAMOUNT", func(row *adminapi.SaleRow) []any {
	plan := "-"
	if row.PlanID != 0 {
		plan = strconv.FormatInt(row.PlanID, 10)
	}
	return []any{dash(row.Day.String()), row.Kind, plan, dash(row.Title), row.Currency, row.Count, row.Amount}
})

func printSales(w *tabwriter.Writer, c *call, answer []byte) error {
	if !c.isSet("csv") {
		return saleRows(w, c, answer)
	}
	var list struct {
		Items []adminapi.SaleRow `json:"items"`
	}
	if json.Unmarshal(answer, &list) != nil {
		return errNotAdmin
	}
	return adminapi.WriteSalesCSV(c.OutOrStdout(), list.Items)
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
