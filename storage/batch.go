package storage

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// batch collects the writes of closures that run one after another over what
// base has. The engine sees nothing before the end, when every key is written
// once: so rolling back one closure costs the engine nothing, and a key that a
// hundred closures change costs it one write.
type batch struct {
	layer
	jobs []*job // whose closures have run, or need not any more
	undo []undo // what the closure that runs has replaced

	readErr error // the first error of base in the closure that ran last
}

// undo restores the state of a key before a write.
type undo struct {
	of  *write
	old write
}

func newBatch(base Reader) *batch {
	return &batch{layer: layer{base, newPending()}}
}

// again makes a batch over base of one that nobody needs any more.
func (b *batch) again(base Reader) *batch {
	if b == nil {
		return newBatch(base)
	}
	b.base, b.readErr = base, nil
	b.pending.clear()
	clear(b.jobs)
	b.jobs = b.jobs[:0]
	if cap(b.undo) > mostKept {
		b.undo = nil
	}
	return b
}

// add runs the closure of a job, unless its caller has left. It returns
// ErrConflict when the engine says that what it reads is void.
func (b *batch) add(j *job) error {
	b.jobs = append(b.jobs, j)
	if !j.begin() {
		return nil
	}
	j.err = b.run(j.fn)
	if errors.Is(b.readErr, ErrConflict) {
		return b.readErr
	}
	return nil
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
			*u.of = u.old
		}
	}
	clear(b.undo)
	b.undo = b.undo[:0]
	return err
}

// Get implements [Txn].
func (b *batch) Get(key []byte) ([]byte, error) {
	val, err := b.layer.Get(key)
	b.note(err)
	return val, err
}

// Scan implements [Txn].
func (b *batch) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	err := b.layer.Scan(lo, hi, fn)
	b.note(err)
	return err
}

// Set implements [Txn].
func (b *batch) Set(key, val []byte, purge time.Time) error {
	if val == nil {
		val = []byte{} // nil is the answer for an absent key
	}
	b.put(write{key: key, val: val, purge: purge, kind: set})
	return nil
}

// Delete implements [Txn].
func (b *batch) Delete(key []byte) error {
	b.put(write{key: key, kind: deleted})
	return nil
}

// put records a write and how to take it back.
func (b *batch) put(w write) {
	have := b.pending.of(w.key)
	b.undo = append(b.undo, undo{have, *have})
	*have = w
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
