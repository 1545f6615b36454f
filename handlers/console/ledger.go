package console

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/money"
)

// showLedger answers the lines of one of the user's accounts, newest first: one page, or
// all of them as CSV.
func showLedger(req *request) (any, error) {
	q := query.Of(req.r)
	p := q.Page()
	format := q.Word("format", "json", "csv")
	name := q.Text("account")
	if q.Fault != nil {
		return nil, q.Fault
	}
	account, err := req.runtime.Billing.Account(req.r.Context(), req.account.UserID, name)
	if err != nil {
		return nil, err
	}
	if format == "csv" {
		return nil, req.ledgerCSV(account)
	}
	lines, total, err := req.runtime.Ledger.Entries(req.r.Context(), account, p.Skip, p.Limit)
	if err != nil {
		return nil, err
	}
	shown := make([]shownLine, len(lines))
	for i, line := range lines {
		shown[i] = shownLine{line, line.Held}
	}
	return listed(shown, total, p), nil
}

// shownLine is a line as its user sees it: it always has held.
type shownLine struct {
	ledger.EntryInfo
	Held money.Amount `json:"held"`
}

// ledgerCSV answers all lines of an account. Lines that are written meanwhile are left out.
func (req *request) ledgerCSV(account journal.Account) error {
	skip, last := int64(0), uint64(0)
	columns := []string{"number", "time", "kind", "amount", "held", "balance", "reference", "reason", "count", "transfer_id"}
	return req.csv("ledger.csv", columns, func() (rows [][]string, err error) {
		lines, _, err := req.runtime.Ledger.Entries(req.r.Context(), account, skip, csvBatch)
		skip += int64(len(lines))
		for _, line := range lines {
			if last > 0 && line.Number >= last {
				rows = append(rows, nil) // new lines have moved it from the last batch to this one
				continue
			}
			last = line.Number
			count := "" // empty unless the line is a sum of calls
			if line.Count > 0 {
				count = strconv.Itoa(line.Count)
			}
			rows = append(rows, []string{
				strconv.FormatUint(line.Number, 10), time.Unix(line.Time, 0).UTC().Format(time.RFC3339),
				string(line.Kind), line.Amount.String(), line.Held.String(), line.Balance.String(),
				adminapi.PlainCell(line.Reference), adminapi.PlainCell(line.Reason), count, line.Transfer.String(),
			})
		}
		return rows, err
	})
}

// csvBatch is how many rows are read in one transaction. No transaction is open while rows are
// sent to a slow client.
const csvBatch = 500

// csv answers a file of rows. next returns the next batch of them, of which those that are nil are
// left out; an empty batch ends the file.
func (req *request) csv(file string, columns []string, next func() ([][]string, error)) error {
	rows, err := next()
	if err != nil {
		return err
	}
	header := req.w.Header()
	header.Set("Content-Type", "text/csv; charset=utf-8")
	header.Set("Content-Disposition", `attachment; filename="`+file+`"`)
	out := csv.NewWriter(req.w)
	out.UseCRLF = true // RFC 4180
	_ = out.Write(columns)
	for len(rows) > 0 {
		for _, row := range rows {
			if row != nil {
				_ = out.Write(row)
			}
		}
		if out.Error() != nil {
			return nil // the client has disconnected
		}
		if rows, err = next(); err != nil {
			// The status has been sent, so only an incomplete body can signal the error.
			panic(http.ErrAbortHandler)
		}
	}
	out.Flush()
	return nil
}
