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

// difference is by how much what counts tasks changes with one of them.
type difference struct{ running, waiting, open int64 }

// between is the difference from what a task was to what it is.
func between(before, after *record) (d difference) {
	for _, side := range []struct {
		rec  *record
		sign int64
	}{{before, -1}, {after, +1}} {
		if side.rec == nil {
			continue
		}
		if side.rec.running() {
			d.running += side.sign
		}
		if side.rec.waiting() {
			d.waiting += side.sign
		}
		if !side.rec.over() {
			d.open += side.sign
		}
	}
	return d
}

// add counts a difference that a task makes.
func (l load) add(d difference, rec *record) load {
	l.Running += d.running
	l.Waiting += d.waiting
	l.Last = max(l.Last, rec.Place)
	return l
}

// count brings what counts tasks from what one was to what it is.
func count(t storage.Txn, before, after *record) error {
	d := between(before, after)
	one := after
	if one == nil {
		one = before
	}
	if d.running != 0 || d.waiting != 0 {
		l, err := readLoad(t, one.Backend)
		if err != nil {
			return err
		}
		if err := l.add(d, one).write(t, one.Backend); err != nil {
			return err
		}
	}
	if d.open == 0 {
		return nil
	}
	n, err := unfinished(t, one.Key)
	if err != nil {
		return err
	}
	return setUnfinished(t, one.Key, n+d.open)
}

// unfinished is how many tasks of an API key are not over.
func unfinished(r storage.Reader, key string) (n int64, err error) {
	_, err = storage.GetRecord(r, storage.Key(openPrefix, key), &n)
	return n, err
}

func setUnfinished(t storage.Txn, key string, n int64) error {
	if n == 0 {
		return t.Delete(storage.Key(openPrefix, key))
	}
	return storage.SetRecord(t, storage.Key(openPrefix, key), n)
}
