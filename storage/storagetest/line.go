package storagetest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Line is the connection of a node to a shared engine. A test can cut it. Each update is rehearsed before
// it runs, as an engine of several processes may do.
type Line struct {
	storage.Engine

	// Latency is the time before each update.
	Latency time.Duration

	// OnCommit is called instead of each update, with a function that commits it. Nil: none.
	OnCommit func(commit func() error) error

	cut atomic.Bool
}

// Cut cuts the connection, or mends it.
func (l *Line) Cut(cut bool) { l.cut.Store(cut) }

// IsCut reports whether the connection is cut.
func (l *Line) IsCut() bool { return l.cut.Load() }

// Shared implements [storage.Shared].
func (l *Line) Shared() bool { return true }

// View implements [storage.Engine].
func (l *Line) View(ctx context.Context, fn func(storage.Reader) error) error {
	if l.IsCut() {
		return storage.ErrUnreachable
	}
	return l.Engine.View(ctx, fn)
}

// errRehearsed rolls a rehearsal back.
var errRehearsed = errors.New("storagetest: rehearsed")

// Update implements [storage.Engine].
func (l *Line) Update(ctx context.Context, fn func(storage.Txn) error) error {
	time.Sleep(l.Latency)
	if l.IsCut() {
		return storage.ErrUnreachable
	}
	_ = l.Engine.Update(ctx, func(t storage.Txn) error { return errors.Join(fn(t), errRehearsed) })
	commit := func() error { return l.Engine.Update(ctx, fn) }
	if l.OnCommit != nil {
		return l.OnCommit(commit)
	}
	return commit()
}

// Interface guard
var _ storage.Shared = (*Line)(nil)
