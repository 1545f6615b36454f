package console

import (
	"slices"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// maxSkipped limits the calls on earlier pages, because each of them is read.
const maxSkipped = 100_000

// showCalls answers the calls of a user, newest first: one page, or all of them as CSV.
func showCalls(req *request) (any, error) {
	q := query.Of(req.r)
	p := q.Page()
	format := q.Word("format", "json", "csv")
	filter := callFilter(q)
	if p.Skip > maxSkipped {
		q.Refuse("p", "leads further back than %d calls; use `end` to begin at an older one", maxSkipped)
	}
	if q.Fault != nil {
		return nil, q.Fault
	}
	if format == "csv" {
		return nil, req.callsCSV(filter)
	}
	calls, total, err := req.listCalls(filter, p)
	return listed(calls, total, p), err
}

// callFilter returns the calls that the parameters ask for.
func callFilter(q *query.Query) (filter ledger.CallFilter) {
	filter.Key, filter.Model = q.Text("key_id"), q.Text("model")
	filter.From, filter.Until = q.Span()
	return filter
}

func (req *request) listCalls(filter ledger.CallFilter, p query.Page) (calls []ledger.CallInfo, total int64, err error) {
	if total, err = req.countCalls(filter); err != nil {
		return nil, 0, err
	}
	skip, seen := p.Skip, int64(0)
	if total > skip {
		err = req.scanCalls(filter, func(c journal.CallRecord) bool {
			if seen++; seen > skip {
				calls = append(calls, ledger.InfoOf(&c.Call))
			}
			return seen < min(skip+p.Limit, total)
		})
	}
	return calls, total, err
}

// scanCalls calls fn for the calls of the user that match a filter, newest first, until fn returns
// false. Calls that were refused match no model, as in the sums of days.
func (req *request) scanCalls(filter ledger.CallFilter, fn func(journal.CallRecord) bool) error {
	return req.runtime.Ledger.ScanCalls(req.r.Context(), req.account.UserID, filter, func(c journal.CallRecord) bool {
		return filter.Model != "" && c.CountedModel() == "" || fn(c)
	})
}

// callsCSV answers all calls that match a filter. It reads on behind the last call of each batch.
func (req *request) callsCSV(filter ledger.CallFilter) error {
	kinds := usage.KindNames()
	for i := range kinds {
		kinds[i] += "_tokens"
	}
	columns := slices.Concat([]string{"time", "request_id", "key_id", "model", "route", "stream", "status", "ended", "usage", "rule"},
		kinds, []string{"cost", "first_byte_ms", "duration_ms"})
	var last string // the place of the last call, in the order of the calls
	return req.csv("calls.csv", columns, func() (rows [][]string, err error) {
		err = req.scanCalls(filter, func(c journal.CallRecord) bool {
			if place := string(c.StoreKey(journal.CallPrefix)); place > last {
				last, filter.Until = place, time.UnixMilli(c.Time+1)
				rows = append(rows, callRow(&c.Call))
			}
			return len(rows) < csvBatch
		})
		return rows, err
	})
}

func callRow(c *journal.Call) []string {
	decimal := func(n int64) string { return strconv.FormatInt(n, 10) }
	row := []string{
		time.UnixMilli(c.Time).UTC().Format("2006-01-02T15:04:05.000Z"), c.ID, c.Key, adminapi.PlainCell(c.Model), c.Route,
		strconv.FormatBool(c.Stream), strconv.Itoa(c.Status), string(c.Ended), string(c.Usage), string(c.Rule),
	}
	for _, n := range c.Tokens.ByKind() {
		row = append(row, decimal(n))
	}
	return append(row, c.Cost.String(), decimal(c.FirstByte), decimal(c.Duration))
}

// callDetail is a call with how its cost came about and what paid for it. Like the list, it hides
// the backend and what the operator could not collect.
type callDetail struct {
	ledger.CallInfo
	Breakdown *catalog.Breakdown   `json:"breakdown,omitempty"` // of the cost; absent: nothing has a price
	Paid      []ledger.CallPayment `json:"paid"`
}

func showCall(req *request) (any, error) {
	ctx := req.r.Context()
	record, found, err := req.runtime.Ledger.FindCall(ctx, req.r.PathValue("request_id"), req.account.UserID)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fault.New(fault.NotFound, "there is no such call")
	}
	detail := callDetail{CallInfo: ledger.InfoOf(&record.Call)}
	if detail.Breakdown, err = catalog.ReadBreakdown(record.Breakdown, record.Tokens); err != nil {
		return nil, err
	}
	detail.Paid, err = req.runtime.Ledger.PaymentsOf(ctx, &record)
	return detail, err
}

// countCalls returns how many calls match a filter. It uses the stored sums of whole days, and
// counts the calls of the first and the last day one by one.
func (req *request) countCalls(filter ledger.CallFilter) (total int64, err error) {
	now := req.runtime.Store.Now()
	kept, err := req.runtime.Ledger.CallsFrom(req.r.Context())
	if err != nil {
		return 0, err
	}
	if filter.From.Before(kept) {
		filter.From = kept
	}
	if filter.Until.IsZero() || filter.Until.After(now) {
		filter.Until = midnight(now).AddDate(0, 0, 1) // no call is later than now
	}
	first := midnight(filter.From.Add(day - 1)) // the first whole day
	end := midnight(filter.Until)
	if !first.Before(end) {
		return req.countEach(filter)
	}
	if total, err = req.countDays(filter, first, end); err != nil {
		return 0, err
	}
	for _, part := range [][2]time.Time{{filter.From, first}, {end, filter.Until}} {
		filter.From, filter.Until = part[0], part[1]
		n, err := req.countEach(filter)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// countEach counts calls one by one.
func (req *request) countEach(filter ledger.CallFilter) (total int64, err error) {
	if filter.From.Before(filter.Until) {
		err = req.scanCalls(filter, func(journal.CallRecord) bool {
			total++
			return true
		})
	}
	return total, err
}

// countDays adds up the calls of whole days.
func (req *request) countDays(filter ledger.CallFilter, first, end time.Time) (total int64, err error) {
	from, to := journal.DayOf(first), journal.DayOf(end.Add(-1))
	err = req.runtime.Ledger.ScanUsage(req.r.Context(), req.account.UserID, from, to, func(u journal.Usage) bool {
		if counts(filter, u) {
			total += u.Calls
		}
		return true
	})
	return total, err
}

// counts reports whether the calls of u match the key and the model of a filter.
func counts(filter ledger.CallFilter, u journal.Usage) bool {
	return (filter.Key == "" || u.Key == filter.Key) && (filter.Model == "" || u.Model == filter.Model)
}

const day = 24 * time.Hour

// midnight returns when the UTC day of t began.
func midnight(t time.Time) time.Time { return t.UTC().Truncate(day) }
