package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// This file has engines that break a rule of shared stores, for controls: a test that finds nothing wrong
// over such an engine proves nothing about the others.

// WithoutFence returns e for a node that does not notice the end of its epoch: its fence seems to be
// there for ever.
func WithoutFence(e storage.Engine) storage.Engine { return &unfenced{Engine: e} }

// unfenced remembers the fence that its node has written last.
type unfenced struct {
	storage.Engine
	key, val []byte
}

func (u *unfenced) Update(ctx context.Context, fn func(storage.Txn) error) error {
	var run *unfencedTxn
	err := u.Engine.Update(ctx, func(t storage.Txn) error {
		run = &unfencedTxn{Txn: t, key: u.key, val: u.val}
		return fn(run)
	})
	if err == nil {
		u.key, u.val = run.key, run.val
	}
	return err
}

type unfencedTxn struct {
	storage.Txn
	key, val []byte
}

func (t *unfencedTxn) Get(key []byte) ([]byte, error) {
	val, err := t.Txn.Get(key)
	if val == nil && err == nil && bytes.Equal(key, t.key) {
		val = t.val
	}
	return val, err
}

func (t *unfencedTxn) Set(key, val []byte, purge time.Time) error {
	if bytes.HasPrefix(key, storage.Key("node", "fence")) {
		have, err := t.Txn.Get(key)
		ended := have == nil && t.key != nil
		if t.key, t.val = key, val; err != nil || ended {
			return err
		}
	}
	return t.Txn.Set(key, val, purge)
}

// UnknownAsFailed returns e as an engine that reports a commit whose outcome it does not know as one that
// did not happen.
func UnknownAsFailed(e storage.Engine) storage.Engine { return unknownAsFailed{e} }

type unknownAsFailed struct{ storage.Engine }

func (u unknownAsFailed) Update(ctx context.Context, fn func(storage.Txn) error) error {
	err := u.Engine.Update(ctx, fn)
	if errors.Is(err, storage.ErrUnknown) {
		err = fmt.Errorf("%w: the connection broke", storage.ErrUnreachable)
	}
	return err
}

// Witness is an engine that a test puts below those of a node. It sees each commit that changes more than
// the records of nodes.
type Witness struct {
	storage.Engine
	Epoch    func() int64     // of the node; zero before it has joined
	OnCommit func(ended bool) // is called after a commit. ended: the epoch had ended before, so the fence failed
}

// Update implements [storage.Engine].
func (w *Witness) Update(ctx context.Context, fn func(storage.Txn) error) error {
	var changed, ended bool
	err := w.Engine.Update(ctx, func(t storage.Txn) (err error) {
		changed, ended = false, false
		if epoch := w.Epoch(); epoch != 0 {
			if ended, err = storage.HasEnded(t, epoch); err != nil {
				return err
			}
		}
		return fn(&witnessedTxn{t, &changed})
	})
	if err == nil && changed {
		w.OnCommit(ended)
	}
	return err
}

type witnessedTxn struct {
	storage.Txn
	changed *bool
}

func (t *witnessedTxn) Set(key, val []byte, purge time.Time) error {
	t.note(key)
	return t.Txn.Set(key, val, purge)
}

func (t *witnessedTxn) Delete(key []byte) error {
	t.note(key)
	return t.Txn.Delete(key)
}

func (t *witnessedTxn) note(key []byte) {
	if !bytes.HasPrefix(key, []byte("node/")) {
		*t.changed = true
	}
}
