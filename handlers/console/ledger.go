package console

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing"
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
	account, err := billing.AccountOf(req.account.UserID, name)
	if err != nil {
		return nil, err
	}
	if format == "csv" {
		return nil, req.csv(account)
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

// csvBatch is how many lines are read in one transaction. No transaction is open while
// lines are sent to a slow client.
const csvBatch = 500

// csv answers all lines of an account. Lines that are written meanwhile are left out.
func (req *request) csv(account journal.Account) error {
	ctx := req.r.Context()
	lines, _, err := req.runtime.Ledger.Entries(ctx, account, 0, csvBatch)
	if err != nil {
		return err
	}
	header := req.w.Header()
	header.Set("Content-Type", "text/csv; charset=utf-8")
	header.Set("Content-Disposition", `attachment; filename="ledger.csv"`)
	out := csv.NewWriter(req.w)
	out.UseCRLF = true // RFC 4180
	_ = out.Write([]string{"number", "time", "kind", "amount", "held", "balance", "reference", "reason", "count", "transfer_id"})
	skip, last := int64(0), uint64(0)
	for len(lines) > 0 {
		for _, line := range lines {
			if last > 0 && line.Number >= last {
				continue // new lines have moved it from the last batch to this one
			}
			last = line.Number
			count := "" // empty unless the line is a sum of calls
			if line.Count > 0 {
				count = strconv.Itoa(line.Count)
			}
			_ = out.Write([]string{
				strconv.FormatUint(line.Number, 10), time.Unix(line.Time, 0).UTC().Format(time.RFC3339),
				string(line.Kind), line.Amount.String(), line.Held.String(), line.Balance.String(),
				plainCell(line.Reference), plainCell(line.Reason), count, line.Transfer.String(),
			})
		}
		if out.Error() != nil {
			return nil // the client has disconnected
		}
		skip += int64(len(lines))
		if lines, _, err = req.runtime.Ledger.Entries(ctx, account, skip, csvBatch); err != nil {
			// The status has been sent, so only an incomplete body can signal the error.
			panic(http.ErrAbortHandler)
		}
	}
	out.Flush()
	return nil
}

// plainCell returns text for a cell that a spreadsheet does not take for a formula.
func plainCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}
