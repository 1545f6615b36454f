package storage

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// batch collects the writes of closures that run one after another over one
// engine transaction. The engine sees nothing before the end, when every key is
// written once: so rolling back one closure costs the engine nothing, and a key
// that a hundred closures change costs it one write.
type batch struct {
	base   Txn
	writes map[string]write
	undo   []undo // what the closure that runs has replaced

	readErr error // the first error of base in the closure that ran last
}

// write is the last change of a key.
type write struct {
	key, val []byte
	purge    time.Time
	deleted  bool
}

// undo restores the state of a key before a write.
type undo struct {
	key     string
	old     write
	existed bool
}

func newBatch(base Txn) *batch {
	return &batch{base: base, writes: make(map[string]write)}
}

// run runs fn and keeps its writes if it returns nil. A closure that could not
// read what it asked for is rolled back even when it made nothing of it.
func (b *batch) run(fn func(Txn) error) error {
	b.readErr = nil
	err := guard(fn, b)
	if err == nil {
		err = b.readErr
	}
	if err != nil {
		for _, u := range slices.Backward(b.undo) {
			if u.existed {
				b.writes[u.key] = u.old
			} else {
				delete(b.writes, u.key)
			}
		}
	}
	clear(b.undo)
	b.undo = b.undo[:0]
	return err
}

// apply hands the writes to the engine.
func (b *batch) apply() error {
	for _, w := range b.writes {
		var err error
		if w.deleted {
			err = b.base.Delete(w.key)
		} else {
			err = b.base.Set(w.key, w.val, w.purge)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Get implements [Txn].
func (b *batch) Get(key []byte) ([]byte, error) {
	if w, ok := b.writes[string(key)]; ok {
		return w.val, nil
	}
	val, err := b.base.Get(key)
	b.note(err)
	return val, err
}

// Set implements [Txn].
func (b *batch) Set(key, val []byte, purge time.Time) error {
	if val == nil {
		val = []byte{} // nil is the answer for an absent key
	}
	b.put(write{key: key, val: val, purge: purge})
	return nil
}

// Delete implements [Txn].
func (b *batch) Delete(key []byte) error {
	b.put(write{key: key, deleted: true})
	return nil
}

// Scan implements [Txn]: it merges the engine's keys with those of the batch,
// of which it takes a copy first, so that fn may write.
func (b *batch) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	var own []write
	for _, w := range b.writes {
		if bytes.Compare(w.key, lo) >= 0 && (hi == nil || bytes.Compare(w.key, hi) < 0) {
			own = append(own, w)
		}
	}
	slices.SortFunc(own, func(x, y write) int { return bytes.Compare(x.key, y.key) })

	// ownBelow hands out the batch's keys below limit, all when limit is nil.
	more := true
	ownBelow := func(limit []byte) {
		for more && len(own) > 0 && (limit == nil || bytes.Compare(own[0].key, limit) < 0) {
			if w := own[0]; !w.deleted {
				more = fn(w.key, w.val)
			}
			own = own[1:]
		}
	}
	err := b.base.Scan(lo, hi, func(key, val []byte) bool {
		ownBelow(key)
		if len(own) > 0 && bytes.Equal(own[0].key, key) {
			return more // the batch's own version follows, before the next key
		}
		more = more && fn(key, val)
		return more
	})
	if err != nil {
		b.note(err)
		return err
	}
	ownBelow(nil)
	return nil
}

// put records a write and how to take it back.
func (b *batch) put(w write) {
	key := string(w.key)
	old, existed := b.writes[key]
	b.undo = append(b.undo, undo{key, old, existed})
	b.writes[key] = w
}

// note keeps the first error that the engine answered a read with.
func (b *batch) note(err error) {
	if b.readErr == nil {
		b.readErr = err
	}
}

// PanicError is what the caller of a closure gets when the closure panics.
type PanicError struct {
	Value any    // what the closure panicked with
	Stack []byte // where
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("storage: closure panicked: %v", e.Value) }

// Unwrap returns Value when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guard runs fn and turns a panic into an error.
func guard(fn func(Txn) error, t Txn) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(t)
}
