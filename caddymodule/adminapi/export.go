package adminapi

import (
	"cmp"
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

// PaymentRow is a row of the report on payments. Fields that the report is not grouped by are
// empty. Each transfer counts on the UTC day on which it was booked.
type PaymentRow struct {
	Day      journal.Day  `json:"day,omitempty"`
	Provider string       `json:"provider,omitempty"`
	Currency string       `json:"currency"`
	Orders   int64        `json:"orders"` // number of paid orders
	Gross    money.Amount `json:"gross"`
	Refunds  money.Amount `json:"refunds"`
	Disputes money.Amount `json:"disputes"`
	Restored money.Amount `json:"restored"` // paid back to the operator after disputes
	Net      money.Amount `json:"net"`
	Count    int64        `json:"count"` // number of transfers
}

// add adds an amount that a payment service has collected from users. A negative amount was paid
// back.
func (row *PaymentRow) add(kind journal.Kind, amount money.Amount) {
	row.Count++
	row.Net += amount
	switch kind {
	case journal.TopUp:
		row.Orders++
		row.Gross += amount
	case journal.Refund:
		row.Refunds -= amount
	case journal.Dispute:
		row.Disputes -= amount
	case journal.Restore:
		row.Restored += amount
	}
}

// PaymentReport is a report on payments. It has the totals of all days if the request has `totals`.
type PaymentReport struct {
	Page[PaymentRow]
	Totals []PaymentRow `json:"totals,omitempty"`
}

// addTransfer adds a transfer of an order.
func (row *PaymentRow) addTransfer(o *records.OrderRecord, x *journal.Transfer) {
	for _, leg := range x.Legs {
		if leg.Account.Family() == journal.Paid(o.Provider) {
			row.add(x.Kind, -leg.Amount)
		}
	}
}

func comparePayments(a, b PaymentRow) int {
	return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Currency, b.Currency))
}

// reportPayments adds up the amounts that payment services have collected from users. All amounts
// come from the ledger: net is the change of the accounts of the services.
func reportPayments(c *call) (any, error) {
	from, until := c.span()
	by, totals := c.groups("day", "provider"), c.q.Flag("totals")
	if totals && c.q.Word("format", "json", "csv") == "csv" {
		c.q.Refuse("totals", "is for JSON")
	}
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	rows, ofAllDays := make(sums[PaymentRow]), make(sums[PaymentRow])
	err := c.Billing.ScanPayments(c.ctx(), from, func(o *records.OrderRecord, x *journal.Transfer) {
		at := time.UnixMilli(x.Time)
		if !until.IsZero() && !at.Before(until) {
			return
		}
		row := PaymentRow{Currency: o.Currency}
		if slices.Contains(by, "provider") {
			row.Provider = o.Provider
		}
		if totals {
			ofAllDays.of(row).addTransfer(o, x)
		}
		if slices.Contains(by, "day") {
			row.Day = journal.DayOf(at)
		}
		rows.of(row).addTransfer(o, x)
	})
	switch {
	case err != nil:
		return nil, err
	case totals:
		return PaymentReport{Page[PaymentRow]{Items: rows.sorted(comparePayments)}, ofAllDays.sorted(comparePayments)}, nil
	default:
		return reported(c, rows.sorted(comparePayments), WritePaymentsCSV)
	}
}

// exportLedger streams all transfers as CSV, one line for each leg. It omits memo accounts, so the
// amounts of a transfer have the sum zero.
func exportLedger(c *call) (any, error) {
	from, until := c.span()
	return c.streamed("ledger export", "text/csv; charset=utf-8", func(w io.Writer) error {
		out := csv.NewWriter(w)
		_ = out.Write([]string{"time", "transfer_id", "kind", "account", "user_id", "amount", "held", "number", "reference", "actor", "reason", "count", "task_id"})
		err := c.Ledger.ScanTransfers(c.ctx(), from, until, func(x *journal.Transfer) error {
			var about string
			switch x.Kind {
			case journal.Hold, journal.Settle, journal.Void:
				var err error
				if about, err = c.Ledger.About(c.ctx(), x); err != nil {
					return err
				}
			}
			for _, leg := range x.Legs {
				if leg.Account.Memo() {
					continue
				}
				_ = out.Write([]string{
					time.UnixMilli(x.Time).UTC().Format("2006-01-02T15:04:05.000Z"), x.ID.String(), string(x.Kind),
					string(leg.Account), cmp.Or(leg.Account.Owner(), x.User), leg.Amount.String(), leg.Held.String(),
					strconv.FormatUint(leg.Number, 10), PlainCell(x.Reference), PlainCell(x.Actor), PlainCell(x.Reason), strconv.Itoa(x.Count), about,
				})
			}
			return out.Error()
		})
		out.Flush()
		return cmp.Or(err, out.Error())
	}), nil
}

// PlainCell returns text in a form that a spreadsheet does not interpret as a formula.
func PlainCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}
