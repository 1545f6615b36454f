package task

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/multiset"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Verify looks whether the tasks of a store add up: that what is held is what
// open tasks hold, that a success was settled and a failure voided; that every
// key which leads to a task or a callback is there, and leads to one; that what
// counts tasks counts them right; and that each task whose key had a callback
// address is in the outbox, delivered or dead. problem is called for each thing
// that does not add up. r is one snapshot; the error is that of reading.
func Verify(r storage.Reader, now time.Time, problem func(format string, args ...any)) error {
	v := &verification{Reader: r, now: milliseconds(now), problem: problem, loads: make(map[string]load), open: multiset.New()}
	for _, step := range []func() error{v.tasks, v.counts, v.bodies, v.names, v.holds, v.events} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type verification struct {
	storage.Reader
	now     int64
	problem func(format string, args ...any)
	loads   map[string]load // as the tasks have it, by backend
	open    *multiset.Hash  // unfinished tasks, by API key
}

// tasks checks each task with all that it leads to.
func (v *verification) tasks() error {
	err := tasks.Verify(v, (*record).what, v.problem)
	for rec, bad := range tasks.Scan(v, tasks.Under()) {
		if err = cmp.Or(err, passed(bad)); err != nil {
			return err
		}
		if bad != nil {
			continue
		}
		l := v.loads[rec.Backend]
		switch {
		case rec.waiting():
			l.Waiting++
			if rec.deferred() {
				l.Deferred++
			}
			l.Last = max(l.Last, rec.Place)
		case rec.running():
			l.Running++
		}
		v.loads[rec.Backend] = l
		if !rec.over() {
			v.open.Add([]byte(rec.Key), +1)
		}
		for _, check := range []func(*record) error{v.body, v.money, v.claim, v.session, v.event} {
			if err := passed(check(rec)); err != nil {
				return err
			}
		}
	}
	return err
}

// passed drops the error of a record that cannot be read: it is reported where the record is
// stored.
func passed(err error) error {
	if errors.Is(err, storage.ErrUnreadable) {
		return nil
	}
	return err
}

func (r *record) what() string { return "task " + r.ID }

// wrong returns what in a task contradicts itself.
func (r *record) wrong() (wrong []string) {
	tell := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	switch r.State {
	case Queued, InProgress, Success, Failed:
	default:
		tell(true, "%q is no state", r.State)
	}
	switch r.Delivery {
	case None, Sending, Accepted, Rejected, Unknown:
	default:
		tell(true, "%q is no hand-over", r.Delivery)
	}
	tell(r.over() == (r.Completed == 0), "it is %s, and was completed at %d", r.State, r.Completed)
	tell((r.State == Success) != (len(r.Results) > 0), "it is %s, and has %d results", r.State, len(r.Results))
	tell((r.State == Failed) != (r.Failure != nil), "it is %s, and why it failed is %v", r.State, r.Failure)
	tell(!r.over() && r.Due == 0, "it is %s, and nobody will look at it", r.State)
	tell(r.Resume != 0 && !r.deferred(), "it is %s, and to be tried again", r.State)
	tell(!r.over() && r.Delivery == Rejected, "it was refused, and is %s", r.State)
	tell(r.Delivery == Accepted && r.Ref == nil, "it was accepted without a reference")
	tell((r.State == InProgress || r.State == Success) && r.Delivery != Accepted, "it is %s, and its hand-over %s", r.State, r.Delivery)
	tell(!r.over() && r.Delivery == Accepted && r.Deadline > r.AcceptedAt+jobLife.Milliseconds(), "it has more than a day at its backend")
	return wrong
}

// body checks that what the backend is asked for is there while it is needed.
func (v *verification) body(r *record) error {
	apart, err := v.Get(storage.Key(bodyPrefix, r.ID))
	if err != nil {
		return err
	}
	there, elsewhere, needed := apart != nil, r.Body != nil, !r.over()
	if r.Enclosed {
		there, elsewhere, needed = elsewhere, there, !r.over() && r.Delivery != Accepted
	}
	if there != needed {
		v.problem("task %s: it is %s, and its body is there: %t", r.ID, r.State, there)
	}
	if elsewhere {
		v.problem("task %s: a body of it is where none belongs", r.ID)
	}
	return nil
}

// money checks the hold of a task.
func (v *verification) money(r *record) error {
	hold, found, err := journal.ReadHold(v, r.User, holdID(r.ID))
	if errors.Is(err, storage.ErrUnreadable) {
		return nil // the ledger reports it
	}
	if err != nil {
		return err
	}
	if found != (r.Hold > 0) {
		v.problem("task %s: it holds %v, and has a hold: %t", r.ID, r.Hold, found)
		return nil
	}
	want := journal.Held
	switch {
	case r.State == Success && r.Charged > 0:
		want = journal.Settled
	case r.over():
		want = journal.Voided
	}
	switch {
	case r.State == Failed && r.Charged != 0:
		v.problem("task %s: it failed, and was charged %v", r.ID, r.Charged)
	case !found && r.Charged != 0:
		v.problem("task %s: it was charged %v without a hold", r.ID, r.Charged)
	case found && hold.State != want:
		v.problem("task %s: it is %s and was charged %v, its hold is %s", r.ID, r.State, r.Charged, hold.State)
	case found && (hold.Amount != r.Hold || hold.Charged != r.Charged):
		v.problem("task %s: it holds %v and was charged %v, its hold says %v and %v", r.ID, r.Hold, r.Charged, hold.Amount, hold.Charged)
	}
	return nil
}

// claim checks that the idempotency key of a task leads to it.
func (v *verification) claim(r *record) error {
	if r.IdempotencyHash == "" {
		return nil
	}
	have, err := idempotencyKeys.Get(v, r.Key, r.IdempotencyHash)
	if err == nil && (have == nil || have.Task != r.ID) {
		v.problem("task %s: its idempotency key does not lead to it", r.ID)
	}
	return err
}

// session checks that the session id of a task is in use for as long as it must.
func (v *verification) session(r *record) error {
	until := r.Created + SessionWindow.Milliseconds()
	if r.SessionID == "" || v.now >= until {
		return nil
	}
	have, err := sessions.Get(v, r.Key, hashOf(r.SessionID))
	if err == nil && (have == nil || have.Task != r.ID || have.Until != until) {
		v.problem("task %s: its session id is not used by it until %d", r.ID, until)
	}
	return err
}

// event checks that the callback of a task is there.
func (v *verification) event(r *record) error {
	event, err := readEvent(v, r.ID)
	if err == nil && (event != nil) != r.Event {
		v.problem("task %s: it has a callback: %t, the outbox has it: %t", r.ID, r.Event, event != nil)
	}
	return err
}

// counts checks what is counted of tasks.
func (v *verification) counts() error {
	err := v.each(loadPrefix, func(key, val []byte) error {
		name := string(key[len(loadPrefix)+1:])
		said, err := decodeLoad(val)
		if err != nil {
			v.problem("backend %s: its record cannot be read: %v", name, err)
			return nil
		}
		is := v.loads[name]
		delete(v.loads, name)
		if said.Running != is.Running || said.Waiting != is.Waiting || said.Deferred != is.Deferred || said.Last < is.Last {
			v.problem("backend %s: it is said to have %d running and %d waiting (%d deferred) up to place %d, and has %d and %d (%d) up to %d",
				name, said.Running, said.Waiting, said.Deferred, said.Last, is.Running, is.Waiting, is.Deferred, is.Last)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, is := range v.loads {
		if is.Running+is.Waiting > 0 {
			v.problem("backend %s: it has %d running and %d waiting, and nothing counts them", name, is.Running, is.Waiting)
		}
	}
	var keys [][]byte
	err = v.each(openPrefix, func(key, val []byte) error {
		n, err := decodeUnfinished(val)
		if err != nil || n <= 0 {
			v.problem("key %q: it counts %d unfinished tasks, %v", key, n, err)
		}
		name := key[len(openPrefix)+1:]
		v.open.Add(name, -n)
		if len(keys) < 1 {
			keys = append(keys, append([]byte(nil), name...))
		}
		return nil
	})
	if err == nil && !v.open.Equal() {
		v.problem("the unfinished tasks of API keys are counted wrong, of one such as %q", keys)
	}
	return err
}

// holds checks that every open hold is one of a task that is not over.
func (v *verification) holds() error {
	return journal.ScanOpenHolds(v, func(h journal.HoldInfo, id string) error {
		var held money.Amount
		rec, err := readTask(v, id)
		if errors.Is(err, storage.ErrUnreadable) {
			return nil // it was reported
		}
		if err == nil && rec != nil && !rec.over() && holdID(rec.ID) == h.ID {
			held = rec.Hold
		}
		if err == nil && held != h.Amount {
			v.problem("hold %s of %s: it holds %v open, and its task %q holds %v", h.ID, h.User, h.Amount, id, held)
		}
		return err
	})
}

// bodies checks that every body is one of a task that is not over; each of
// those was found from its task.
func (v *verification) bodies() error {
	return v.each(bodyPrefix, func(key, _ []byte) error {
		rec, err := readTask(v, lastID(key))
		if err == nil && rec == nil {
			v.problem("key %q: it is the body of a task that is not there", key)
		}
		return err
	})
}

// names checks that session ids and idempotency keys lead to their tasks.
func (v *verification) names() error {
	err := cmp.Or(
		sessions.Verify(v, func(s *sessionRecord) string { return "session id of " + s.Task }, v.problem),
		idempotencyKeys.Verify(v, func(c *idempotencyRecord) string { return "idempotency key of " + c.Task }, v.problem))
	for have, bad := range sessions.Scan(v, sessions.Under()) {
		if err = cmp.Or(err, passed(bad)); err != nil {
			return err
		}
		if bad != nil || v.now >= have.Until {
			continue // the task may be gone before it is
		}
		rec, bad := readTask(v, have.Task)
		if bad == nil && (rec == nil || rec.Key != have.Key || hashOf(rec.SessionID) != have.Hash) {
			v.problem("a session id leads to task %s, which is not there or has another session id", have.Task)
		}
		err = passed(bad)
	}
	for have, bad := range idempotencyKeys.Scan(v, idempotencyKeys.Under()) {
		if err = cmp.Or(err, passed(bad)); err != nil {
			return err
		}
		if bad != nil {
			continue
		}
		rec, bad := readTask(v, have.Task)
		if bad == nil && (rec == nil || rec.Key != have.Key || rec.IdempotencyHash != have.Hash) {
			v.problem("an idempotency key leads to task %s, which is not there or has another idempotency key", have.Task)
		}
		err = passed(bad)
	}
	return err
}

// events checks the outbox.
func (v *verification) events() error {
	err := events.Verify(v, (*eventRecord).what, v.problem)
	for have, bad := range events.Scan(v, events.Under()) {
		if err = cmp.Or(err, passed(bad)); err != nil {
			return err
		}
		if bad != nil {
			continue
		}
		rec, bad := readTask(v, have.Task)
		if bad == nil && (rec == nil || !rec.over() || rec.Key != have.Key || rec.User != have.User) {
			v.problem("%s: there is no such task that is over", have.what())
		}
		err = passed(bad)
	}
	return err
}

func (v *eventRecord) what() string { return "callback of " + v.Task }

// wrong returns what in a callback contradicts itself.
func (v *eventRecord) wrong() []string {
	switch {
	case v.State == Undelivered && v.Due == 0:
		return []string{"it is not delivered, and nobody will send it"}
	case v.State != Undelivered && (v.State != Delivered && v.State != Dead || v.Due != 0 || v.Ended == 0):
		return []string{fmt.Sprintf("it is %q since %d, and is sent at %d", v.State, v.Ended, v.Due)}
	}
	return nil
}

// each calls fn for all keys below a prefix. It goes on after a record that cannot be read, which
// is reported where it is stored.
func (v *verification) each(prefix string, fn func(key, val []byte) error) error {
	var failed error
	lo, hi := storage.Below(prefix)
	err := v.Scan(lo, hi, func(key, val []byte) bool {
		if failed = fn(key, val); errors.Is(failed, storage.ErrUnreadable) {
			failed = nil
		}
		return failed == nil
	})
	return cmp.Or(err, failed)
}
