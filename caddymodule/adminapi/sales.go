package adminapi

import (
	"cmp"
	"io"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

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
