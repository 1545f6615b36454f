package console

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// loggedCall is a call as its caller sees it.
type loggedCall struct {
	RequestID string       `json:"request_id"`
	Time      int64        `json:"time"` // when it came, Unix seconds
	KeyID     string       `json:"key_id"`
	Model     string       `json:"model"`
	Route     string       `json:"route"`
	Stream    bool         `json:"stream"`
	Status    int          `json:"status"` // zero while it is under way
	Ended     usage.Ended  `json:"ended"`  // empty while it is under way
	Usage     usage.Basis  `json:"usage"`
	Rule      usage.Rule   `json:"rule,omitempty"` // that decided the charge, if the caller disconnected or the call failed
	Tokens    usage.Tokens `json:"tokens"`
	Cost      money.Amount `json:"cost"`
	FirstByte int64        `json:"first_byte_ms,omitempty"` // from when it came
	Duration  int64        `json:"duration_ms"`
}

// maxBack is how many calls may stand before a page: they are read to be
// skipped.
const maxBack = 100_000

// listCalls answers the calls of a user, newest first.
func listCalls(v *visit) error {
	q := v.query()
	p := q.paging()
	filter := ledger.CallFilter{Key: q.text("key_id"), Model: q.text("model")}
	filter.From, filter.Until = q.window()
	if p.skip() > maxBack {
		q.refuse("p", "leads further back than %d calls; use `end` to begin at an older one", maxBack)
	}
	if q.fault != nil {
		return q.fault
	}
	total, err := v.countCalls(filter)
	if err != nil {
		return err
	}
	var calls []loggedCall
	skip, seen := p.skip(), int64(0)
	if total > skip {
		err = v.scanCalls(filter, func(c ledger.Call) bool {
			if seen++; seen > skip {
				calls = append(calls, loggedCall{
					RequestID: c.ID, Time: c.Time / 1000, KeyID: c.Key, Model: c.Model, Route: c.Route, Stream: c.Stream,
					Status: c.Status, Ended: c.Ended, Usage: c.Usage, Rule: c.Rule, Tokens: c.Tokens, Cost: c.Cost,
					FirstByte: c.FirstByte, Duration: c.Duration,
				})
			}
			return seen < min(skip+p.size, total)
		})
	}
	if err != nil {
		return err
	}
	return v.answer(listed(calls, total, p))
}

// scanCalls calls fn for the calls of the user until it returns false, or the
// user has left.
func (v *visit) scanCalls(filter ledger.CallFilter, fn func(ledger.Call) bool) error {
	ctx := v.r.Context()
	err := v.runtime.Ledger.ScanCalls(ctx, v.account.UserID, filter, func(c ledger.Call) bool {
		return ctx.Err() == nil && fn(c)
	})
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// countCalls returns how many calls a filter takes. Whole days are summed up
// already; only in those that it takes in part are the calls counted.
func (v *visit) countCalls(filter ledger.CallFilter) (total int64, err error) {
	now := v.runtime.Store.Now()
	kept, err := v.runtime.Ledger.CallsFrom(v.r.Context())
	if err != nil {
		return 0, err
	}
	if filter.From.Before(kept) {
		filter.From = kept
	}
	if filter.Until.IsZero() || filter.Until.After(now) {
		filter.Until = midnight(now).AddDate(0, 0, 1) // there are none after now
	}
	first := midnight(filter.From.Add(day - 1)) // of the whole days
	end := midnight(filter.Until)
	if !first.Before(end) {
		return v.countEach(filter)
	}
	if total, err = v.countDays(filter, first, end); err != nil {
		return 0, err
	}
	for _, part := range [][2]time.Time{{filter.From, first}, {end, filter.Until}} {
		filter.From, filter.Until = part[0], part[1]
		n, err := v.countEach(filter)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// countEach counts calls one by one.
func (v *visit) countEach(filter ledger.CallFilter) (total int64, err error) {
	if filter.From.Before(filter.Until) {
		err = v.scanCalls(filter, func(ledger.Call) bool {
			total++
			return true
		})
	}
	return total, err
}

// countDays adds up the calls of whole days.
func (v *visit) countDays(filter ledger.CallFilter, first, end time.Time) (total int64, err error) {
	from, to := ledger.DayOf(first), ledger.DayOf(end.Add(-1))
	err = v.runtime.Ledger.ScanUsage(v.r.Context(), v.account.UserID, from, to, func(u ledger.Usage) bool {
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
