package adminapi

import (
	"cmp"
	"encoding/csv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
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

// UsageRow is a row of the usage report. Fields that the report is not grouped by are
// empty.
type UsageRow struct {
	Day    journal.Day `json:"day,omitempty"`
	UserID string      `json:"user_id,omitempty"`
	User   string      `json:"user,omitempty"`
	KeyRef
	Model  string       `json:"model,omitempty"`
	Calls  int64        `json:"calls"`
	Tasks  int64        `json:"tasks"` // number of charged tasks
	Tokens usage.Tokens `json:"tokens"`
	Cost   money.Amount `json:"cost"`
	Lost   money.Amount `json:"uncollected,omitempty"`
}

// KeyRef names a key in a report.
type KeyRef struct {
	KeyID      string `json:"key_id,omitempty"`
	KeyName    string `json:"key_name,omitempty"`
	ConsoleKey bool   `json:"console_key,omitempty"` // the hidden key of tasks that were made in the console
}

// groupings are the fields by which a usage report can be grouped.
var groupings = map[string]func(row *UsageRow, u *journal.Usage){
	"day":   func(row *UsageRow, u *journal.Usage) { row.Day = u.Day },
	"user":  func(row *UsageRow, u *journal.Usage) { row.UserID = u.User },
	"key":   func(row *UsageRow, u *journal.Usage) { row.UserID, row.KeyID = u.User, u.Key },
	"model": func(row *UsageRow, u *journal.Usage) { row.Model = u.Model },
}

// reportUsage sums up the usage and the cost of calls and tasks. Every figure comes from
// the ledger: the sum of all costs is the revenue of calls and tasks.
func reportUsage(c *call) (any, error) {
	user, err := c.userOf(c.q.Text("user"))
	if err != nil {
		return nil, err
	}
	from, to := c.day("from"), c.day("to")
	if from != "" && to != "" && from > to {
		c.q.Refuse("to", "must not be before `from`")
	}
	by := c.groups("day", "user", "key", "model")
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	all := make(sums[UsageRow])
	err = c.Ledger.ScanUsage(c.ctx(), user.ID, from, to, func(u journal.Usage) bool {
		var row UsageRow
		for _, group := range by {
			groupings[group](&row, &u)
		}
		sum := all.of(row)
		sum.Calls += u.Calls
		sum.Tasks += u.Tasks
		sum.Tokens = sum.Tokens.Plus(u.Tokens)
		sum.Cost += u.Cost
		sum.Lost += u.Uncollected
		return true
	})
	if err != nil {
		return nil, err
	}
	names, err := namesOf(c, slices.Collect(maps.Keys(all)), func(row UsageRow) string { return row.UserID })
	if err != nil {
		return nil, err
	}
	owners := make(map[string]string)
	for row := range all {
		if row.KeyID != "" {
			owners[row.KeyID] = row.UserID
		}
	}
	labels, err := c.Directory.KeyLabels(c.ctx(), owners)
	if err != nil {
		return nil, err
	}
	for _, row := range all {
		row.User, row.KeyRef = names[row.UserID], KeyRef{row.KeyID, labels[row.KeyID].Name, labels[row.KeyID].Console}
	}
	rows := all.sorted(func(a, b UsageRow) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.User, b.User), cmp.Compare(a.KeyID, b.KeyID), cmp.Compare(a.Model, b.Model))
	})
	return reported(c, rows, WriteUsageCSV)
}

// day returns a day of the query, such as 2026-11-20, or an empty one for no bound.
func (c *call) day(param string) journal.Day {
	text := c.q.Text(param)
	if text == "" {
		return ""
	}
	day, err := journal.ParseDay(text)
	if err != nil {
		c.q.Refuse(param, "must be a day such as 2026-11-20")
	}
	return day
}

// SaleRow is a row of the report on what users bought: top-ups at payment services, and plans from
// the wallet. Fields that the report is not grouped by are empty. Each sale counts on the UTC day
// on which it was booked.
type SaleRow struct {
	Day      journal.Day  `json:"day,omitempty"`
	Kind     string       `json:"kind"` // topup, purchase, renewal, claim or grant
	PlanID   int64        `json:"plan_id,omitempty"`
	Title    string       `json:"title,omitempty"` // of the plan, as it was sold last
	Currency string       `json:"currency"`
	Count    int64        `json:"count"`
	Amount   money.Amount `json:"amount"`
}

// topUp is the kind of the rows of top-ups.
const topUp = "topup"

// reportSales adds up what users bought. Refunds and disputes of top-ups are only in the report
// on payments, because they end no plan.
func reportSales(c *call) (any, error) {
	from, until := c.span()
	byDay := len(c.groups("day")) > 0
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	all := make(sums[SaleRow]) // the keys have no titles
	add := func(at time.Time, row SaleRow, amount money.Amount) *SaleRow {
		if !until.IsZero() && !at.Before(until) {
			return nil
		}
		if byDay {
			row.Day = journal.DayOf(at)
		}
		sum := all.of(row)
		sum.Count++
		sum.Amount += amount
		return sum
	}
	err := c.Billing.ScanPayments(c.ctx(), from, func(o *records.OrderRecord, x *journal.Transfer) {
		if x.Kind == journal.TopUp {
			add(time.UnixMilli(x.Time), SaleRow{Kind: topUp, Currency: o.Currency}, o.Amount)
		}
	})
	if err != nil {
		return nil, err
	}
	err = c.Billing.ScanSales(c.ctx(), from, func(s *records.SubscriptionRecord, sale records.Sale) {
		row := SaleRow{Kind: string(sale.Kind), PlanID: s.PlanID, Currency: sale.Currency}
		if sum := add(time.Unix(sale.Time, 0), row, sale.Price); sum != nil {
			sum.Title = s.Title
		}
	})
	if err != nil {
		return nil, err
	}
	rows := all.sorted(func(a, b SaleRow) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.PlanID, b.PlanID), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Currency, b.Currency))
	})
	return reported(c, rows, WriteSalesCSV)
}

// WriteSalesCSV writes a report of sales as CSV. The columns do not depend on the grouping.
func WriteSalesCSV(out io.Writer, rows []SaleRow) error {
	heads := []string{"day", "kind", "plan_id", "title", "currency", "count", "amount"}
	return writeCSV(out, heads, rows, func(row *SaleRow) []string {
		plan := ""
		if row.PlanID != 0 {
			plan = strconv.FormatInt(row.PlanID, 10)
		}
		return []string{row.Day.String(), row.Kind, plan, PlainCell(row.Title), row.Currency, strconv.FormatInt(row.Count, 10), row.Amount.String()}
	})
}
