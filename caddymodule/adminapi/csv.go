package adminapi

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// reported answers the rows of a report as the query wants them: as JSON or as CSV.
func reported[T any](c *call, rows []T, write func(io.Writer, []T) error) (any, error) {
	if c.q.Word("format", "json", "csv") == "csv" {
		return c.streamed("a report", "text/csv; charset=utf-8", func(w io.Writer) error { return write(w, rows) }), nil
	}
	return listed(rows, nil)
}

// WriteUsageCSV writes a usage report with every column for every grouping, so that programs can
// rely on the columns.
func WriteUsageCSV(out io.Writer, rows []UsageRow) error {
	w := csv.NewWriter(out)
	_ = w.Write(slices.Concat([]string{"day", "user_id", "user", "key_id", "key_name", "console_key", "model", "calls"}, usage.KindNames(), []string{"cost", "uncollected", "tasks"}))
	for _, row := range rows {
		day := ""
		if row.Day != "" {
			day = row.Day.String()
		}
		console := ""
		if row.ConsoleKey {
			console = "true"
		}
		line := append(make([]string, 0, 11+usage.Kinds), day, row.UserID, PlainCell(row.User), row.KeyID, PlainCell(row.KeyName), console, PlainCell(row.Model), strconv.FormatInt(row.Calls, 10))
		for _, n := range row.Tokens.ByKind() {
			line = append(line, strconv.FormatInt(n, 10))
		}
		_ = w.Write(append(line, row.Cost.String(), row.Lost.String(), strconv.FormatInt(row.Tasks, 10)))
	}
	w.Flush()
	return w.Error()
}

// WritePaymentsCSV writes a report of payments with every column for every grouping.
func WritePaymentsCSV(out io.Writer, rows []PaymentRow) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"day", "provider", "currency", "orders", "gross", "refunds", "disputes", "restored", "net", "count"})
	for _, row := range rows {
		_ = w.Write([]string{
			row.Day.String(), row.Provider, row.Currency, strconv.FormatInt(row.Orders, 10), row.Gross.String(), row.Refunds.String(),
			row.Disputes.String(), row.Restored.String(), row.Net.String(), strconv.FormatInt(row.Count, 10),
		})
	}
	w.Flush()
	return w.Error()
}
