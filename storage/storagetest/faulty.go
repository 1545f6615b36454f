package storagetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Fault is what goes wrong with one commit.
type Fault int

const (
	// None: nothing goes wrong.
	None Fault = iota

	// Conflict: nothing is committed, ErrConflict.
	Conflict

	// UnknownCommitted: it is committed, but told as ErrUnknown.
	UnknownCommitted

	// UnknownLost: nothing is committed, told as ErrUnknown.
	UnknownLost

	// LowSpace: nothing is committed, ErrLowSpace.
	LowSpace

	// SyncFailed: it is visible, but told as ErrSync, as after a failed sync.
	SyncFailed

	// Halted: nothing is committed, neither now nor later, nor can anything be
	// read: as if the process had been killed before this commit. What is in
	// the engine below can then be looked at.
	Halted
)

// The errors of a [Faulty] engine that are its own.
var (
	ErrSync   = errors.New("storagetest: sync failed")
	ErrHalted = errors.New("storagetest: halted")
)

// Faulty is an engine whose commits go wrong by plan.
type Faulty struct {
	storage.Engine

	mu      sync.Mutex
	plan    []Fault
	limit   int
	commits int
	halted  bool
}

// NewFaulty returns e with faults to be planned; until then there are none.
func NewFaulty(e storage.Engine) *Faulty { return &Faulty{Engine: e} }

// Plan appends the faults that the next commits will meet, one each. A commit
// is an Update whose closure succeeded.
func (f *Faulty) Plan(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = append(f.plan, faults...)
}

// After returns a plan in which n commits go well before fault.
func After(n int, fault Fault) []Fault {
	return append(slices.Repeat([]Fault{None}, n), fault)
}

// LimitWrites makes a transaction of more than n writes too large. 0: no limit.
func (f *Faulty) LimitWrites(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = n
}

// Commits returns how many commits there were, faulty ones included.
func (f *Faulty) Commits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits
}

// Sole implements [storage.Sole]: it is what the engine below is.
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
	var told error // of a commit that happens and is told as an error
	err := f.Engine.Update(ctx, func(txn storage.Txn) error {
		if err := fn(&limited{Txn: txn, left: f.writes()}); err != nil {
			return err
		}
		told = nil
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
			told = storage.ErrUnknown
		case SyncFailed:
			told = ErrSync
		}
		return nil
	})
	if err != nil {
		return err
	}
	return told
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

// writes returns how many writes a transaction may make, negative for any number.
func (f *Faulty) writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit == 0 {
		return -1
	}
	return f.limit
}

// limited is a transaction that takes only so many writes.
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
