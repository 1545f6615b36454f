package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/query"
)

// group is the usage of a day, a model or a key.
type group struct {
	Day   string `json:"day,omitempty"` // 2026-11-20, in UTC
	Model string `json:"model,omitempty"`
	KeyID string `json:"key_id,omitempty"`
	Last  string `json:"last_day,omitempty"` // of a key: the last day on which it was used
	journal.Sum
}

// usageReport is the usage of a user in a span of whole days.
type usageReport struct {
	Start int64       `json:"start"` // Unix seconds, of a midnight in UTC
	End   int64       `json:"end"`   // the midnight after the last day
	Total journal.Sum `json:"total"`
	Items []group     `json:"items"`
}

// Bounds of a report.
const (
	defaultDays = 30
	maxDays     = 366
)

// groupings returns the group of a record, by the value of the parameter group.
var groupings = map[string]func(journal.Usage) group{
	"day":       func(u journal.Usage) group { return group{Day: u.Day.String()} },
	"model":     func(u journal.Usage) group { return group{Model: u.Model} },
	"key":       func(u journal.Usage) group { return group{KeyID: u.Key} },
	"day_model": func(u journal.Usage) group { return group{Day: u.Day.String(), Model: u.Model} },
}

// showUsage answers the usage of a user, or of one key or model, by day, model, key, or day and
// model. The days are those of UTC that the span touches; by default the last 30.
func showUsage(req *request) (any, error) {
	q := query.Of(req.r)
	groupOf := groupings[q.Word("group", "day", "model", "key", "day_model")]
	filter := ledger.CallFilter{Key: q.Text("key_id"), Model: q.Text("model")}
	q.Word("tz", "UTC") // no other time zone is summed up
	start, end := days(q, req.runtime.Store.Now())
	if q.Fault != nil {
		return nil, q.Fault
	}
	report := usageReport{Start: start.Unix(), End: end.Unix()}
	sums, last := make(map[group]*journal.Sum), make(map[string]string)
	err := req.runtime.Ledger.ScanUsage(req.r.Context(), req.account.UserID, journal.DayOf(start), journal.DayOf(end.Add(-1)), func(u journal.Usage) bool {
		if !counts(filter, u) {
			return true
		}
		of := groupOf(u)
		if sums[of] == nil {
			sums[of] = new(journal.Sum)
		}
		sums[of].Add(u)
		last[of.KeyID] = max(last[of.KeyID], u.Day.String())
		report.Total.Add(u)
		return true
	})
	if err != nil {
		return nil, err
	}
	report.Items = make([]group, 0, len(sums))
	for of, sum := range sums {
		of.Sum = *sum
		if of.KeyID != "" {
			of.Last = last[of.KeyID]
		}
		report.Items = append(report.Items, of)
	}
	slices.SortFunc(report.Items, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(b.Cost, a.Cost), cmp.Compare(b.Calls, a.Calls),
			cmp.Compare(a.Model, b.Model), cmp.Compare(a.KeyID, b.KeyID))
	})
	return report, nil
}

// days returns the parameters start and end, widened to whole days.
func days(q *query.Query, now time.Time) (start, end time.Time) {
	start, end = q.Span()
	if end.IsZero() {
		end = now
	}
	end = midnight(end.Add(day - 1))
	if start.IsZero() {
		start = end.Add(-defaultDays * day)
	}
	start = midnight(start)
	if !start.Before(end) {
		q.Refuse("start", "must lie before now")
	}
	if end.Sub(start) > maxDays*day {
		q.Refuse("start", "must lie at most %d days before `end`", maxDays)
	}
	return start, end
}
