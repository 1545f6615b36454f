package storage

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// batch collects the writes of closures that run one after another on top of
// base. The engine receives them at the end, each key once. Thus the
// engine does not see closures that are rolled back, and writes a key once even
// if many closures change it.
type batch struct {
	layer
	jobs []*job // whose closures have run or were abandoned
	undo []undo // the writes that the running closure has replaced

	readErr error // the first error of base in the last closure
}

// undo restores the state of a key before a write.
type undo struct {
	of  *write
	old write
}

func newBatch(base Reader) *batch {
	return &batch{layer: layer{base, newPending()}}
}

// reuse returns an empty batch over base that reuses the memory of b, which may
// be nil.
func (b *batch) reuse(base Reader) *batch {
	if b == nil {
		return newBatch(base)
	}
	b.base, b.readErr = base, nil
	b.pending.clear()
	clear(b.jobs)
	b.jobs = b.jobs[:0]
	if cap(b.undo) > maxKept {
		b.undo = nil
	}
	return b
}

// add runs the closure of a job, unless its caller has given up. It returns
// ErrConflict if the engine reports that a read of the closure is invalid.
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

// run runs fn and keeps its writes if it returns nil. If a read failed, fn is
// rolled back even if it ignored the error.
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

// put records a write and how to undo it.
func (b *batch) put(w write) {
	have := b.pending.of(w.key)
	b.undo = append(b.undo, undo{have, *have})
	*have = w
}

// note keeps the first error of a read.
func (b *batch) note(err error) {
	if b.readErr == nil {
		b.readErr = err
	}
}

// PanicError is the error of a closure that panicked.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the stack of the panic
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("storage: closure panicked: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// guard runs fn and converts a panic to an error.
func guard(fn func(Txn) error, t Txn) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(t)
}
