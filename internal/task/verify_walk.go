package task

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/caddy-modelgate/modelgate/storage"
)

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
		claims.Verify(v, func(c *claimRecord) string { return "idempotency key of " + c.Task }, v.problem))
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
	for have, bad := range claims.Scan(v, claims.Under()) {
		if err = cmp.Or(err, passed(bad)); err != nil {
			return err
		}
		if bad != nil {
			continue
		}
		rec, bad := readTask(v, have.Task)
		if bad == nil && (rec == nil || rec.Key != have.Key || rec.Claim != have.Hash) {
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

// each calls fn for all keys below a prefix. A record that cannot be read, to which
// one of them leads, is told of where it lies, and keeps nothing else from being
// looked at.
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
