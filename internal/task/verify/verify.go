package verify

import (
	"cmp"
	"errors"
	"iter"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/multiset"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Tasks checks the tasks of a store. The holds must match the unfinished tasks; the hold of a
// success must be captured and that of a failure voided. Every index key of tasks and callbacks must
// exist and refer to a record. The counts of tasks must be right. Each finished task with a callback
// must have an event. Tasks calls problem for each finding. r must be one snapshot; the error is
// that of reading.
func Tasks(r storage.Reader, now time.Time, problem func(format string, args ...any)) error {
	v := &verification{Reader: r, now: now.UnixMilli(), problem: problem, loads: make(map[string]record.Load), open: multiset.New()}
	for _, step := range []func(){v.tasks, v.counts, v.bodies, v.names, v.holds, v.events} {
		if step(); v.failed != nil {
			return v.failed
		}
	}
	return nil
}

type verification struct {
	storage.Reader
	now     int64
	problem func(format string, args ...any)
	loads   map[string]record.Load // counted from the tasks, by backend
	open    *multiset.Hash         // unfinished tasks, by API key
	failed  error                  // the first error of reading, which ends the verification
}

// ok reports whether a read has succeeded. The table of an unreadable record reports it; any other
// error ends the verification.
func (v *verification) ok(err error) bool {
	if err != nil && !errors.Is(err, storage.ErrUnreadable) {
		v.failed = cmp.Or(v.failed, err)
	}
	return err == nil && v.failed == nil
}

// all checks the keys of a table and yields its records.
func all[R any](v *verification, t *table.Table[R], name func(*R) string) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		v.ok(t.Verify(v, name, v.problem))
		for rec, err := range t.Scan(v, t.Under()) {
			if v.ok(err) && !yield(rec) || v.failed != nil {
				return
			}
		}
	}
}

// each calls fn for all keys below a prefix.
func (v *verification) each(prefix string, fn func(key, val []byte)) {
	lo, hi := storage.Below(prefix)
	v.ok(v.Scan(lo, hi, func(key, val []byte) bool {
		fn(key, val)
		return v.failed == nil
	}))
}

// task returns a task; nil if there is none, and false if it cannot be read.
func (v *verification) task(id string) (*record.Record, bool) {
	rec, err := record.Tasks.Get(v, id)
	return rec, v.ok(err)
}

// tasks checks each task with the records that it refers to.
func (v *verification) tasks() {
	for rec := range all(v, &record.Tasks, func(r *record.Record) string { return "task " + r.ID }) {
		if !rec.Over() {
			l := v.loads[rec.Backend]
			l.Count(rec, +1)
			if rec.Waiting() {
				l.Last = max(l.Last, rec.Place)
			}
			v.loads[rec.Backend] = l
			v.open.Add([]byte(rec.Key), +1)
		}
		v.body(rec)
		v.money(rec)
		v.reserved(rec)
		event, err := record.Events.Get(v, rec.ID)
		if v.ok(err) && (event != nil) != rec.Event {
			v.problem("task %s: it has a callback: %t, the outbox has one: %t", rec.ID, rec.Event, event != nil)
		}
	}
}

// body checks that the job of a task is stored: in its record, or apart while the task is unfinished.
func (v *verification) body(r *record.Record) {
	apart, err := v.Get(storage.Key(record.BodyPrefix, r.ID))
	if !v.ok(err) {
		return
	}
	exists, elsewhere, needed := apart != nil, r.Body != nil, !r.Over()
	if r.Enclosed {
		exists, elsewhere, needed = elsewhere, exists, true
	}
	if exists != needed {
		v.problem("task %s: it is %s, and its body exists: %t", r.ID, r.State, exists)
	}
	if elsewhere {
		v.problem("task %s: it has a second body", r.ID)
	}
}

// money checks the hold of a task. The ledger reports a hold that cannot be read.
func (v *verification) money(r *record.Record) {
	hold, found, err := journal.ReadHold(v, r.User, record.HoldID(r.ID))
	if !v.ok(err) {
		return
	}
	want := journal.Held
	switch {
	case r.State == record.Success && r.Charged > 0:
		want = journal.Settled
	case r.Over():
		want = journal.Voided
	}
	switch {
	case found != (r.Hold > 0):
		v.problem("task %s: its price held is %v, and a hold exists: %t", r.ID, r.Hold, found)
	case r.State == record.Failed && r.Charged != 0:
		v.problem("task %s: it failed, and was charged %v", r.ID, r.Charged)
	case !found && r.Charged != 0:
		v.problem("task %s: it was charged %v without a hold", r.ID, r.Charged)
	case found && hold.State != want:
		v.problem("task %s: it is %s and was charged %v, its hold is %s", r.ID, r.State, r.Charged, hold.State)
	case found && (hold.Amount != r.Hold || hold.Charged != r.Charged):
		v.problem("task %s: it holds %v and was charged %v, its hold has %v and %v", r.ID, r.Hold, r.Charged, hold.Amount, hold.Charged)
	}
}

// reserved checks that the idempotency record and the session id of a task refer to it.
func (v *verification) reserved(r *record.Record) {
	if r.IdempotencyHash != "" {
		have, err := record.IdempotencyKeys.Get(v, r.Key, r.IdempotencyHash)
		if v.ok(err) && (have == nil || have.Task != r.ID) {
			v.problem("task %s: its idempotency record does not refer to it", r.ID)
		}
	}
	until := r.Created + transition.SessionWindow.Milliseconds()
	if r.SessionID != "" && v.now < until {
		have, err := record.Sessions.Get(v, r.Key, record.HashOf(r.SessionID))
		if v.ok(err) && (have == nil || have.Task != r.ID || have.Until != until) {
			v.problem("task %s: its session id is not in use until %d", r.ID, until)
		}
	}
}

// counts checks the counts of tasks.
func (v *verification) counts() {
	v.each(record.LoadPrefix, func(key, val []byte) {
		name := string(key[len(record.LoadPrefix)+1:])
		stored, err := record.DecodeLoad(val)
		if err != nil {
			v.problem("backend %s: its record cannot be read: %v", name, err)
			return
		}
		is := v.loads[name]
		delete(v.loads, name)
		if stored.Running != is.Running || stored.Waiting != is.Waiting || stored.Deferred != is.Deferred || stored.Last < is.Last {
			v.problem("backend %s: its counts are %d running and %d waiting (%d deferred) up to place %d; its tasks are %d and %d (%d) up to %d",
				name, stored.Running, stored.Waiting, stored.Deferred, stored.Last, is.Running, is.Waiting, is.Deferred, is.Last)
		}
	})
	if v.failed != nil {
		return
	}
	for name, is := range v.loads {
		v.problem("backend %s: it has %d running and %d waiting tasks, and no counts", name, is.Running, is.Waiting)
	}
	var first string
	v.each(record.OpenPrefix, func(key, val []byte) {
		n, err := record.DecodeUnfinished(val)
		if err != nil || n <= 0 {
			v.problem("key %q: it counts %d unfinished tasks, %v", key, n, err)
		}
		name := key[len(record.OpenPrefix)+1:]
		v.open.Add(name, -n)
		first = cmp.Or(first, string(name))
	})
	if v.failed == nil && !v.open.Equal() {
		v.problem("the counts of unfinished tasks of API keys are wrong, for example of %q", first)
	}
}

// bodies checks that the task of every body exists.
func (v *verification) bodies() {
	v.each(record.BodyPrefix, func(key, _ []byte) {
		if rec, ok := v.task(record.LastID(key)); ok && rec == nil {
			v.problem("key %q: the task of this body does not exist", key)
		}
	})
}

// names checks that session ids and idempotency records refer to their tasks. The record of a session
// id that is no longer in use may outlive its task.
func (v *verification) names() {
	for have := range all(v, &record.Sessions, func(s *record.Session) string { return "session id of " + s.Task }) {
		if v.now >= have.Until {
			continue
		}
		if rec, ok := v.task(have.Task); ok && (rec == nil || rec.Key != have.Key || record.HashOf(rec.SessionID) != have.Hash) {
			v.problem("a session id refers to task %s, which does not exist or has another session id", have.Task)
		}
	}
	for have := range all(v, &record.IdempotencyKeys, func(k *record.IdempotencyRecord) string { return "idempotency key of " + k.Task }) {
		if rec, ok := v.task(have.Task); ok && (rec == nil || rec.Key != have.Key || rec.IdempotencyHash != have.Hash) {
			v.problem("an idempotency record refers to task %s, which does not exist or has another idempotency key", have.Task)
		}
	}
}

// holds checks that every open hold belongs to an unfinished task.
func (v *verification) holds() {
	v.ok(journal.ScanOpenHolds(v, func(h journal.HoldInfo, id string) error {
		var held money.Amount
		rec, ok := v.task(id)
		if ok && rec != nil && !rec.Over() && record.HoldID(rec.ID) == h.ID {
			held = rec.Hold
		}
		if ok && held != h.Amount {
			v.problem("hold %s of %s: it is open with %v, and its task %q holds %v", h.ID, h.User, h.Amount, id, held)
		}
		return v.failed
	}))
}

// events checks the callbacks in the outbox.
func (v *verification) events() {
	name := func(e *record.Event) string { return "callback of " + e.Task }
	for have := range all(v, &record.Events, name) {
		if rec, ok := v.task(have.Task); ok && (rec == nil || !rec.Over() || rec.Key != have.Key || rec.User != have.User) {
			v.problem("%s: there is no such finished task", name(have))
		}
	}
}
