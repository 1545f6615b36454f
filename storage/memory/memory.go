// Package memory is a storage engine that keeps everything in memory, for tests
// and demos. [New] returns an [Engine]; its data ends with the process. The
// package imports only package storage and its package backup.
package memory

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/backup"
)

// Engine is a [storage.Engine] in memory. Updates run one at a time; a View
// reads a snapshot and neither waits for updates nor delays them.
//
// It never drops expired keys: the clock of the store decides what has expired,
// so tests must not depend on the disappearance of a key.
type Engine struct {
	*data
	shared bool
	closed atomic.Bool
}

// data is what engines of the same store have in common.
type data struct {
	root   atomic.Pointer[tree]
	writer chan struct{} // holds one token while an Update runs
}

// New returns an empty engine.
func New() *Engine {
	return &Engine{data: &data{writer: make(chan struct{}, 1)}}
}

// NewShared returns a function that returns engines with the same data, as each of several
// processes has one.
func NewShared() (open func() *Engine) {
	first := New()
	return func() *Engine { return &Engine{data: first.data, shared: true} }
}

// View implements [storage.Engine].
func (e *Engine) View(ctx context.Context, fn func(storage.Reader) error) error {
	if err := e.usable(ctx); err != nil {
		return err
	}
	return fn(&txn{root: e.root.Load()})
}

// Update implements [storage.Engine]. It never returns ErrConflict,
// ErrTooLarge or ErrUnknown.
func (e *Engine) Update(ctx context.Context, fn func(storage.Txn) error) error {
	select {
	case e.writer <- struct{}{}:
		defer func() { <-e.writer }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := e.usable(ctx); err != nil {
		return err
	}
	t := &txn{root: e.root.Load()}
	if err := fn(t); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	e.root.Store(t.root)
	return nil
}

// Sole implements [storage.Sole].
func (e *Engine) Sole() bool { return !e.shared }

// Shared implements [storage.Shared].
func (e *Engine) Shared() bool { return e.shared }

// Close implements [storage.Engine]. It waits for a running Update.
func (e *Engine) Close() error {
	e.writer <- struct{}{}
	e.closed.Store(true)
	<-e.writer
	return nil
}

// usable returns an error if no transaction may begin.
func (e *Engine) usable(ctx context.Context) error {
	if e.closed.Load() {
		return storage.ErrClosed
	}
	return ctx.Err()
}

// Backup implements [storage.Backuper].
func (e *Engine) Backup(ctx context.Context, w io.Writer) error {
	if err := e.usable(ctx); err != nil {
		return err
	}
	return backup.Write(w, func(add func(backup.Entry) bool) error {
		e.root.Load().scan(nil, nil, func(key, val []byte) bool { return add(backup.Entry{Key: key, Val: val}) })
		return nil
	})
}

// Restore implements [storage.Backuper].
func (e *Engine) Restore(ctx context.Context, r io.Reader) error {
	return e.Update(ctx, func(t storage.Txn) error {
		if t.(*txn).root != nil {
			return storage.ErrNotEmpty
		}
		for b := backup.NewReader(r); ; {
			entry, err := b.Next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			if err := t.Set(entry.Key, entry.Val, time.Time{}); err != nil {
				return err
			}
		}
	})
}

// txn is a transaction with a root of its own, which Update publishes at
// commit.
type txn struct{ root *tree }

func (t *txn) Get(key []byte) ([]byte, error) { return t.root.get(key), nil }

func (t *txn) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	t.root.scan(lo, hi, fn)
	return nil
}

func (t *txn) Set(key, val []byte, _ time.Time) error {
	if val == nil {
		val = []byte{} // nil would mean an absent key
	}
	t.root = t.root.set(bytes.Clone(key), bytes.Clone(val))
	return nil
}

func (t *txn) Delete(key []byte) error {
	t.root = t.root.remove(key)
	return nil
}

var (
	_ storage.Engine   = (*Engine)(nil)
	_ storage.Backuper = (*Engine)(nil)
	_ storage.Sole     = (*Engine)(nil)
	_ storage.Shared   = (*Engine)(nil)
)
