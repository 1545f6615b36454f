package task

import (
	"github.com/caddy-modelgate/modelgate/storage"
)

// load is what a backend has to do, at taskload/<backend>. It is written in the
// transaction of every task that changes it, so that no two drivers give the
// same slot away.
type load struct {
	Running int64 `json:"running"` // tasks handed over, or about to be, and not over
	Waiting int64 `json:"waiting"` // tasks that wait for a slot
	Last    int64 `json:"last"`    // the place in the queue given last
	Drained bool  `json:"drained,omitempty"`
}

func readLoad(r storage.Reader, backend string) (l load, err error) {
	_, err = storage.GetRecord(r, storage.Key(loadPrefix, backend), &l)
	return l, err
}

func (l load) write(t storage.Txn, backend string) error {
	return storage.SetRecord(t, storage.Key(loadPrefix, backend), l)
}

// room tells whether a slot is free; most is how many there are, zero for any
// number.
func (l load) room(most int) bool {
	return !l.Drained && (most == 0 || l.Running < int64(most))
}

// join gives a new task its place in the queue of its backend. It is taken when
// the task is written, see [count].
func join(t storage.Txn, rec *record) (load, error) {
	l, err := readLoad(t, rec.Backend)
	if err != nil {
		return l, err
	}
	rec.Place = l.Last + 1
	return l, nil
}

// count brings what counts tasks from what one was to what it is.
func count(t storage.Txn, before, after *record) error {
	var running, waiting, open int64
	for _, side := range []struct {
		rec  *record
		sign int64
	}{{before, -1}, {after, +1}} {
		if side.rec == nil {
			continue
		}
		if side.rec.running() {
			running += side.sign
		}
		if side.rec.waiting() {
			waiting += side.sign
		}
		if !side.rec.over() {
			open += side.sign
		}
	}
	one := after
	if one == nil {
		one = before
	}
	if running != 0 || waiting != 0 {
		l, err := readLoad(t, one.Backend)
		if err != nil {
			return err
		}
		l.Running += running
		l.Waiting += waiting
		l.Last = max(l.Last, one.Place)
		if err := l.write(t, one.Backend); err != nil {
			return err
		}
	}
	if open == 0 {
		return nil
	}
	n, err := unfinished(t, one.Key)
	if err != nil {
		return err
	}
	if n += open; n == 0 {
		return t.Delete(storage.Key(openPrefix, one.Key))
	}
	return storage.SetRecord(t, storage.Key(openPrefix, one.Key), n)
}

// unfinished is how many tasks of an API key are not over.
func unfinished(r storage.Reader, key string) (n int64, err error) {
	_, err = storage.GetRecord(r, storage.Key(openPrefix, key), &n)
	return n, err
}
