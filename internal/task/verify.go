package task

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
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

// passed leaves out that a record cannot be read, which is told of where it lies.
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
	switch r.Handover {
	case None, Sending, Accepted, Refused, Doubt:
	default:
		tell(true, "%q is no hand-over", r.Handover)
	}
	tell(r.over() == (r.Completed == 0), "it is %s, and was completed at %d", r.State, r.Completed)
	tell((r.State == Success) != (len(r.Results) > 0), "it is %s, and has %d results", r.State, len(r.Results))
	tell((r.State == Failed) != (r.Failure != nil), "it is %s, and why it failed is %v", r.State, r.Failure)
	tell(!r.over() && r.Due == 0, "it is %s, and nobody will look at it", r.State)
	tell(r.Resume != 0 && !r.deferred(), "it is %s, and to be tried again", r.State)
	tell(!r.over() && r.Handover == Refused, "it was refused, and is %s", r.State)
	tell(r.Handover == Accepted && r.Ref == nil, "it was accepted without a reference")
	tell((r.State == InProgress || r.State == Success) && r.Handover != Accepted, "it is %s, and its hand-over %s", r.State, r.Handover)
	tell(!r.over() && r.Handover == Accepted && r.Deadline > r.Handed+handoverLife.Milliseconds(), "it has more than a day at its backend")
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
		there, elsewhere, needed = elsewhere, there, !r.over() && r.Handover != Accepted
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
	hold, found, err := ledger.ReadHold(v, r.User, holdID(r.ID))
	if errors.Is(err, storage.ErrUnreadable) {
		return nil // the ledger tells of it
	}
	if err != nil {
		return err
	}
	if found != (r.Hold > 0) {
		v.problem("task %s: it holds %v, and has a hold: %t", r.ID, r.Hold, found)
		return nil
	}
	want := ledger.Held
	switch {
	case r.State == Success && r.Charged > 0:
		want = ledger.Settled
	case r.over():
		want = ledger.Voided
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
	if r.Claim == "" {
		return nil
	}
	have, err := claims.Get(v, r.Key, r.Claim)
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
	return ledger.ScanOpenHolds(v, func(h ledger.HoldInfo, id string) error {
		var held money.Amount
		rec, err := readTask(v, id)
		if errors.Is(err, storage.ErrUnreadable) {
			return nil // it was told of
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
