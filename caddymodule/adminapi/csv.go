package adminapi

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// sums are the rows of a report, by the fields that they are grouped by. The keys have no sums.
type sums[R comparable] map[R]*R

// of returns the row of a group.
func (s sums[R]) of(group R) *R {
	if s[group] == nil {
		s[group] = new(group)
	}
	return s[group]
}

// sorted returns all rows in an order.
func (s sums[R]) sorted(compare func(a, b R) int) []R {
	rows := make([]R, 0, len(s))
	for _, row := range s {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, compare)
	return rows
}

// groups returns the parameters `group`, each of which must be one of allowed.
func (c *call) groups(allowed ...string) []string {
	by := c.q.Values["group"]
	for _, group := range by {
		if !slices.Contains(allowed, group) && c.q.Fault == nil {
			c.q.Fault = fault.At(fault.InvalidParameter, "group", "group: %q is not supported; allowed: %s", group, strings.Join(allowed, ", "))
		}
	}
	return by
}

// reported answers the rows of a report as the query wants them: as JSON or as CSV.
func reported[T any](c *call, rows []T, write func(io.Writer, []T) error) (any, error) {
	if c.q.Word("format", "json", "csv") == "csv" {
		return c.streamed("a report", "text/csv; charset=utf-8", func(w io.Writer) error { return write(w, rows) }), nil
	}
	return listed(rows, nil)
}

// writeCSV writes a line of heads, and a line of cells for each row.
func writeCSV[T any](out io.Writer, heads []string, rows []T, cells func(row *T) []string) error {
	w := csv.NewWriter(out)
	_ = w.Write(heads)
	for i := range rows {
		_ = w.Write(cells(&rows[i]))
	}
	w.Flush()
	return w.Error()
}

// WriteUsageCSV writes a usage report with every column for every grouping, so that programs can
// rely on the columns.
func WriteUsageCSV(out io.Writer, rows []UsageRow) error {
	heads := slices.Concat([]string{"day", "user_id", "user", "key_id", "key_name", "console_key", "model", "calls"}, usage.KindNames(), []string{"cost", "uncollected", "tasks"})
	return writeCSV(out, heads, rows, func(row *UsageRow) []string {
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
		return append(line, row.Cost.String(), row.Lost.String(), strconv.FormatInt(row.Tasks, 10))
	})
}

// WritePaymentsCSV writes a report of payments with every column for every grouping.
func WritePaymentsCSV(out io.Writer, rows []PaymentRow) error {
	heads := []string{"day", "provider", "currency", "orders", "gross", "refunds", "disputes", "restored", "net", "count"}
	return writeCSV(out, heads, rows, func(row *PaymentRow) []string {
		return []string{
			row.Day.String(), row.Provider, row.Currency, strconv.FormatInt(row.Orders, 10), row.Gross.String(), row.Refunds.String(),
			row.Disputes.String(), row.Restored.String(), row.Net.String(), strconv.FormatInt(row.Count, 10),
		}
	})
}
