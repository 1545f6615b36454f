package console

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/query"
)

// maxSkipped limits the calls on earlier pages, because each of them is read.
const maxSkipped = 100_000

// listCalls answers the calls of a user, newest first.
func listCalls(req *request, q *query.Query, p query.Page) (calls []ledger.CallInfo, total int64, err error) {
	filter := ledger.CallFilter{Key: q.Text("key_id"), Model: q.Text("model")}
	filter.From, filter.Until = q.Span()
	if p.Skip > maxSkipped {
		q.Refuse("p", "leads further back than %d calls; use `end` to begin at an older one", maxSkipped)
	}
	if q.Fault != nil {
		return nil, 0, q.Fault
	}
	if total, err = req.countCalls(filter); err != nil {
		return nil, 0, err
	}
	skip, seen := p.Skip, int64(0)
	if total > skip {
		err = req.runtime.Ledger.ScanCalls(req.r.Context(), req.account.UserID, filter, func(c journal.CallRecord) bool {
			if seen++; seen > skip {
				calls = append(calls, ledger.InfoOf(&c.Call))
			}
			return seen < min(skip+p.Limit, total)
		})
	}
	return calls, total, err
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
		err = req.runtime.Ledger.ScanCalls(req.r.Context(), req.account.UserID, filter, func(journal.CallRecord) bool {
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
		if (filter.Key == "" || u.Key == filter.Key) && (filter.Model == "" || u.Model == filter.Model) {
			total += u.Calls
		}
		return true
	})
	return total, err
}

const day = 24 * time.Hour

// midnight returns when the UTC day of t began.
func midnight(t time.Time) time.Time { return t.UTC().Truncate(day) }
