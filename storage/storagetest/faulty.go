package storagetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Fault is the failure of one commit.
type Fault int

const (
	// None: no failure.
	None Fault = iota

	// Conflict: nothing is committed; reported as ErrConflict.
	Conflict

	// UnknownCommitted: committed, but reported as ErrUnknown.
	UnknownCommitted

	// UnknownLost: nothing is committed; reported as ErrUnknown.
	UnknownLost

	// LowSpace: nothing is committed; reported as ErrLowSpace.
	LowSpace

	// SyncFailed: committed and visible, but reported as ErrSync.
	SyncFailed

	// Halted: nothing is committed or readable from now on, as if the process
	// had been killed before this commit. A test can then inspect the engine
	// below.
	Halted
)

// The errors of a [Faulty] engine.
var (
	ErrSync   = errors.New("storagetest: sync failed")
	ErrHalted = errors.New("storagetest: halted")
)

// Faulty is an engine whose commits fail as planned.
type Faulty struct {
	storage.Engine

	mu      sync.Mutex
	plan    []Fault
	limit   int
	commits int
	halted  bool
}

// NewFaulty returns e without planned faults.
func NewFaulty(e storage.Engine) *Faulty { return &Faulty{Engine: e} }

// Plan appends the faults of the next commits, one each. A commit is an Update
// whose closure succeeded.
func (f *Faulty) Plan(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = append(f.plan, faults...)
}

// After returns a plan of n successful commits and then fault.
func After(n int, fault Fault) []Fault {
	return append(slices.Repeat([]Fault{None}, n), fault)
}

// LimitWrites makes a transaction of more than n writes fail with ErrTooLarge.
// 0: no limit.
func (f *Faulty) LimitWrites(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = n
}

// Commits returns the number of commits, including faulty ones.
func (f *Faulty) Commits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits
}

// Sole implements [storage.Sole] with the value of the engine below.
func (f *Faulty) Sole() bool {
	sole, ok := f.Engine.(storage.Sole)
	return ok && sole.Sole()
}

// View implements [storage.Engine].
func (f *Faulty) View(ctx context.Context, fn func(storage.Reader) error) error {
	if f.isHalted() {
		return ErrHalted
	}
	return f.Engine.View(ctx, fn)
}

// Update implements [storage.Engine].
func (f *Faulty) Update(ctx context.Context, fn func(storage.Txn) error) error {
	if f.isHalted() {
		return ErrHalted
	}
	var reported error // error that is reported although the commit succeeds
	err := f.Engine.Update(ctx, func(txn storage.Txn) error {
		if storage.Rehearsed(txn) {
			return fn(txn)
		}
		if err := fn(&limited{Txn: txn, left: f.writes()}); err != nil {
			return err
		}
		reported = nil
		switch f.next() {
		case Conflict:
			return storage.ErrConflict
		case UnknownLost:
			return storage.ErrUnknown
		case LowSpace:
			return storage.ErrLowSpace
		case Halted:
			return ErrHalted
		case UnknownCommitted:
			reported = storage.ErrUnknown
		case SyncFailed:
			reported = ErrSync
		}
		return nil
	})
	if err != nil {
		return err
	}
	return reported
}

// next counts a commit and returns its fault.
func (f *Faulty) next() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits++
	fault := None
	if len(f.plan) > 0 {
		fault, f.plan = f.plan[0], f.plan[1:]
	}
	if fault == Halted {
		f.halted = true
	}
	return fault
}

func (f *Faulty) isHalted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.halted
}

// writes returns the maximum number of writes of a transaction; negative: no
// limit.
func (f *Faulty) writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit == 0 {
		return -1
	}
	return f.limit
}

// limited is a transaction with a limited number of writes.
type limited struct {
	storage.Txn
	left int
}

func (l *limited) Set(key, val []byte, purge time.Time) error {
	if l.left == 0 {
		return storage.ErrTooLarge
	}
	l.left--
	return l.Txn.Set(key, val, purge)
}

func (l *limited) Delete(key []byte) error {
	if l.left == 0 {
		return storage.ErrTooLarge
	}
	l.left--
	return l.Txn.Delete(key)
}
