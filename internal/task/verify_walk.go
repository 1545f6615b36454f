package task

import (
	"cmp"
	"errors"

	"github.com/caddy-modelgate/modelgate/storage"
)

// indexes checks that every key that leads to a task is one of that task.
func (v *verification) indexes() error {
	for _, prefix := range []string{ofKeyPrefix, ofUserPrefix, waitPrefix, duePrefix, refPrefix, endPrefix} {
		if err := v.index(prefix); err != nil {
			return err
		}
	}
	return nil
}

// index checks that every key below a prefix is one of those that lead to its
// task.
func (v *verification) index(prefix string) error {
	return v.each(prefix, func(key, _ []byte) error {
		rec, err := readTask(v, lastID(key))
		if err == nil && (rec == nil || !has(rec.indexes(), key)) {
			v.problem("key %q: it leads to a task that is not there, or is not so", key)
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
	err := v.each(sessionPrefix, func(key, val []byte) error {
		var have sessionRecord
		if err := storage.DecodeRecord(val, &have); err != nil {
			v.problem("key %q: it cannot be read: %v", key, err)
			return nil
		}
		if v.now >= have.Until {
			return nil // the task may be gone before it is
		}
		rec, err := readTask(v, have.Task)
		if err == nil && (rec == nil || string(storage.Key(sessionPrefix, rec.Key, hashOf(rec.SessionID))) != string(key)) {
			v.problem("key %q: it leads to task %s, which is not there or has another session id", key, have.Task)
		}
		return err
	})
	return cmp.Or(err, v.each(claimPrefix, func(key, val []byte) error {
		var have claimRecord
		if err := storage.DecodeRecord(val, &have); err != nil {
			v.problem("key %q: it cannot be read: %v", key, err)
			return nil
		}
		rec, err := readTask(v, have.Task)
		if err == nil && (rec == nil || string(storage.Key(claimPrefix, rec.Key, rec.Claim)) != string(key)) {
			v.problem("key %q: it leads to task %s, which is not there or has another idempotency key", key, have.Task)
		}
		return err
	}))
}

// events checks the outbox.
func (v *verification) events() error {
	err := v.each(eventPrefix, func(key, val []byte) error {
		var have eventRecord
		if err := storage.DecodeRecord(val, &have); err != nil {
			v.problem("callback %q: its record cannot be read: %v", key, err)
			return nil
		}
		if string(key) != string(storage.Key(eventPrefix, have.Task)) {
			v.problem("callback of %s: it lies at the key of another, %q", have.Task, key)
			return nil
		}
		switch {
		case have.State == Undelivered && have.Due == 0:
			v.problem("callback of %s: it is not delivered, and nobody will send it", have.Task)
		case have.State != Undelivered && (have.State != Delivered && have.State != Dead || have.Due != 0 || have.Ended == 0):
			v.problem("callback of %s: it is %q since %d, and is sent at %d", have.Task, have.State, have.Ended, have.Due)
		}
		for _, index := range have.indexes() {
			if err := v.exists("callback of "+have.Task, index); err != nil {
				return err
			}
		}
		rec, err := readTask(v, have.Task)
		if err == nil && (rec == nil || !rec.over() || rec.Key != have.Key || rec.User != have.User) {
			v.problem("callback of %s: there is no such task that is over", have.Task)
		}
		return err
	})
	for _, prefix := range []string{eventDuePrefix, eventOfPrefix} {
		err = cmp.Or(err, v.each(prefix, func(key, _ []byte) error {
			event, err := readEvent(v, lastID(key))
			if err == nil && (event == nil || !has(event.indexes(), key)) {
				v.problem("key %q: it leads to a callback that is not there, or is not so", key)
			}
			return err
		}))
	}
	return err
}

func has(keys [][]byte, key []byte) bool {
	for _, k := range keys {
		if string(k) == string(key) {
			return true
		}
	}
	return false
}

// exists checks that a key that leads to something is there.
func (v *verification) exists(what string, key []byte) error {
	have, err := v.Get(key)
	if err == nil && have == nil {
		v.problem("%s: the key %q, which leads to it, is missing", what, key)
	}
	return err
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
