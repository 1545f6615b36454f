package ledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/storage"
)

// maxExamined is the maximum number of calls that are compared with a filter for one list.
const maxExamined = 5000

// LatestCalls returns at most limit calls of a user that match, latest first; of all users if user is
// empty. Calls of one millisecond are in the order of their ids. If after is not empty, the list begins
// behind the call with this id. If the list has more, next is the id after which it continues. LatestCalls
// compares at most maxExamined calls, so a list may be short although there are more. For all users, it
// also reads the latest calls of each user who was active on a day of the list.
func (l *Ledger) LatestCalls(ctx context.Context, user string, f CallFilter, after string, limit int, match func(*journal.Call) bool) (list []journal.CallRecord, next string, err error) {
	m := callMerge{ctx: ctx, filter: f, after: journal.CallRecord{Call: journal.Call{ID: after}}, limit: limit, match: match}
	if at, ok := requestid.Time(after); ok {
		m.after.Time = at.UnixMilli()
		if at = at.Add(time.Millisecond); f.Until.IsZero() || at.Before(f.Until) {
			f.Until = at
		}
	}
	err = l.store.View(ctx, func(r storage.Reader) error {
		m.list, m.next, m.last, m.examined = nil, "", "", 0
		kept, err := journal.ReadRetention(r)
		if err != nil {
			return err
		}
		f.From = latest(f.From, kept.From(l.store.Now()))
		if user != "" {
			_, err = m.merge(r, []string{user}, f)
			return err
		}
		day := journal.Day("99991231")
		if !f.Until.IsZero() {
			day = journal.DayOf(f.Until.Add(day24h - 1))
		}
		for {
			var users []string
			if day, users, err = journal.ActiveUsers(r, day, journal.DayOf(f.From)); err != nil || len(users) == 0 {
				return err
			}
			onDay := f
			if begin := day.Begin(); begin.After(f.From) {
				onDay.From = begin
			}
			if end := day.Begin().AddDate(0, 0, 1); f.Until.IsZero() || end.Before(f.Until) {
				onDay.Until = end
			}
			if full, err := m.merge(r, users, onDay); full || err != nil {
				return err
			}
		}
	})
	return m.list, m.next, fault.OfStore(err)
}

const day24h = 24 * time.Hour

// callMerge merges the calls of several users.
type callMerge struct {
	ctx      context.Context
	filter   CallFilter
	after    journal.CallRecord
	limit    int
	match    func(*journal.Call) bool
	examined int
	list     []journal.CallRecord
	next     string
	last     string // the id of the last call that was examined
	batch    int    // calls of one user that are read at once
}

// callOrder orders calls as lists have them.
func callOrder(a, b *journal.CallRecord) int {
	return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.ID, b.ID))
}

// merge adds the matching calls of users in a span of time. It reports whether the list is full, or too
// many calls were examined.
func (m *callMerge) merge(r storage.Reader, users []string, span CallFilter) (full bool, err error) {
	span.Key, span.Model = "", "" // calls that a filter leaves out are examined, too
	m.batch = min(m.limit+1, max(2, 256/len(users)))
	byNext := func(a, b []journal.CallRecord) int { return callOrder(&a[0], &b[0]) }
	var queues [][]journal.CallRecord // the next calls of each user, ordered by the first
	for _, user := range users {
		queue, err := m.read(r, user, span, m.after)
		if err != nil {
			return false, err
		}
		if len(queue) > 0 {
			queues = append(queues, queue)
		}
	}
	slices.SortFunc(queues, byNext)
	for len(queues) > 0 {
		queue := queues[0]
		c := queue[0]
		matches := (m.filter.Key == "" || c.Key == m.filter.Key) && (m.filter.Model == "" || c.Model == m.filter.Model) && m.match(&c.Call)
		switch {
		case matches && len(m.list) == m.limit:
			m.next = m.list[m.limit-1].ID
			return true, nil
		case m.examined == maxExamined:
			m.next = m.last
			return true, nil
		case matches:
			m.list = append(m.list, c)
		}
		m.examined++
		if m.last = c.ID; len(queue) > 1 {
			queue = queue[1:]
		} else {
			span.Until = time.UnixMilli(c.Time + 1)
			if queue, err = m.read(r, c.User, span, c); err != nil {
				return false, err
			}
		}
		if queues = queues[1:]; len(queue) > 0 {
			at, _ := slices.BinarySearchFunc(queues, queue, byNext)
			queues = slices.Insert(queues, at, queue)
		}
	}
	return false, nil
}

// read returns the next calls of a user behind a call of the list.
func (m *callMerge) read(r storage.Reader, user string, span CallFilter, after journal.CallRecord) (queue []journal.CallRecord, err error) {
	err = scanCalls(m.ctx, r, user, span, func(c journal.CallRecord) bool {
		if after.ID == "" || callOrder(&c, &after) > 0 {
			queue = append(queue, c)
		}
		return len(queue) < m.batch
	})
	return queue, err
}
