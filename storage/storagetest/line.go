package storagetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Line is the connection of a node to a shared engine. A test can cut it, or stop the process. Each update is rehearsed before
// it runs, as an engine of several processes may do.
type Line struct {
	storage.Engine

	// Latency is the time before each update.
	Latency time.Duration

	// OnCommit is called instead of each update, with a function that commits it. Nil: none.
	OnCommit func(commit func() error) error

	cut     atomic.Bool
	mu      sync.Mutex
	stopped chan struct{} // closed when the process goes on; nil while it runs
	stopAt  CommitStep
}

// CommitStep is a step of a commit at which a test can stop a process.
type CommitStep int

const (
	noStep CommitStep = iota

	// BeforeCommit: the process has read everything, and commits when it goes on.
	BeforeCommit

	// BeforeAnswer: the commit has happened, and the process learns it when it goes on.
	BeforeAnswer
)

// StopAt stops the process at a step of its next commit.
func (l *Line) StopAt(step CommitStep) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopAt = step
}

// reach stops the process if it must stop at a step.
func (l *Line) reach(step CommitStep) {
	l.mu.Lock()
	stop := l.stopAt == step
	l.mu.Unlock()
	if stop {
		l.Stop(true)
	}
}

// Stop stops the process of the node, or lets it go on. Meanwhile no transaction begins, commits or returns.
func (l *Line) Stop(stop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopAt = noStep
	switch {
	case stop && l.stopped == nil:
		l.stopped = make(chan struct{})
	case !stop && l.stopped != nil:
		close(l.stopped)
		l.stopped = nil
	}
}

// IsStopped reports whether the process is stopped.
func (l *Line) IsStopped() bool { return l.runs() != nil }

// runs returns a channel that is closed when a stopped process goes on; nil if it runs.
func (l *Line) runs() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// pass waits while the process is stopped, and then returns an error if the line is cut.
func (l *Line) pass() error {
	for runs := l.runs(); runs != nil; runs = l.runs() {
		<-runs
	}
	if l.IsCut() {
		return storage.ErrUnreachable
	}
	return nil
}

// Cut cuts the connection, or mends it.
func (l *Line) Cut(cut bool) { l.cut.Store(cut) }

// IsCut reports whether the connection is cut.
func (l *Line) IsCut() bool { return l.cut.Load() }

// Shared implements [storage.Shared].
func (l *Line) Shared() bool { return true }

// View implements [storage.Engine].
func (l *Line) View(ctx context.Context, fn func(storage.Reader) error) error {
	if err := l.pass(); err != nil {
		return err
	}
	err := l.Engine.View(ctx, fn)
	_ = l.pass()
	return err
}

// errRehearsed rolls a rehearsal back.
var errRehearsed = errors.New("storagetest: rehearsed")

// Update implements [storage.Engine].
func (l *Line) Update(ctx context.Context, fn func(storage.Txn) error) error {
	time.Sleep(l.Latency)
	if err := l.pass(); err != nil {
		return err
	}
	_ = l.Engine.Update(ctx, func(t storage.Txn) error { return errors.Join(fn(t), errRehearsed) })
	commit := func() error { return l.Engine.Update(ctx, fn) }
	l.reach(BeforeCommit)
	if err := l.pass(); err != nil {
		return err
	}
	var err error
	if l.OnCommit != nil {
		err = l.OnCommit(commit)
	} else {
		err = commit()
	}
	l.reach(BeforeAnswer)
	_ = l.pass()
	return err
}

// Interface guard
var _ storage.Shared = (*Line)(nil)
