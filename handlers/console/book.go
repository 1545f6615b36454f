package console

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
)

// showLedger answers the lines of one of the user's accounts, newest first: a
// page of them, or all of them as CSV.
func showLedger(v *visit) error {
	q := v.query()
	p := q.paging()
	format := q.word("format", "json", "csv")
	name := q.text("account")
	if q.fault != nil {
		return q.fault
	}
	account, err := billing.AccountOf(v.account.UserID, name)
	if err != nil {
		return err
	}
	if format == "csv" {
		return v.csv(account)
	}
	lines, total, err := v.runtime.Ledger.Lines(v.r.Context(), account, uint64(p.skip()), int(p.size))
	if err != nil {
		return err
	}
	shown := make([]shownLine, len(lines))
	for i, line := range lines {
		shown[i] = shownLine{line, line.Held}
	}
	return v.answer(listed(shown, int64(total), p))
}

// shownLine is a line as its user sees it, with held always there.
type shownLine struct {
	ledger.Line
	Held money.Amount `json:"held"`
}

// csvBatch is how many lines are read at once. Between the batches the store is
// left alone, however slowly they are taken.
const csvBatch = 500

// csv answers all lines of an account. Those that are written while it is read
// are left out.
func (v *visit) csv(account ledger.Account) error {
	ctx := v.r.Context()
	lines, _, err := v.runtime.Ledger.Lines(ctx, account, 0, csvBatch)
	if err != nil {
		return err
	}
	header := v.w.Header()
	header.Set("Content-Type", "text/csv; charset=utf-8")
	header.Set("Content-Disposition", `attachment; filename="ledger.csv"`)
	out := csv.NewWriter(v.w)
	out.UseCRLF = true // RFC 4180
	_ = out.Write([]string{"number", "time", "kind", "amount", "held", "balance", "reference", "reason", "count", "transfer_id"})
	var skip, last uint64
	for len(lines) > 0 {
		for _, line := range lines {
			if last > 0 && line.Number >= last {
				continue // newer lines have moved it here from the batch before
			}
			last = line.Number
			count := "" // of what is no sum of calls
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
			return nil // whoever asked has left
		}
		skip += uint64(len(lines))
		if lines, _, err = v.runtime.Ledger.Lines(ctx, account, skip, csvBatch); err != nil {
			// The head is gone: a body that breaks off is all that can tell.
			panic(http.ErrAbortHandler)
		}
	}
	out.Flush()
	return nil
}

// plainCell is text for a cell that a spreadsheet must not take for a formula.
func plainCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}
