package record

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Store is the store of one engine. Its methods may be called concurrently.
type Store struct {
	*storage.Store
	Engine  string // owner of the claims of this engine: see [OwnerOf]
	Log     *zap.Logger
	OnAudit func(audit.Event) // called with audit events when they are durable

	Life  context.Context // its end aborts all running work
	Steps sync.WaitGroup  // all running work
}

// Milli returns the time of the store in Unix milliseconds.
func (s *Store) Milli() int64 { return s.Now().UnixMilli() }

// View runs fn in a read transaction. It converts errors of the store to a [fault.Fault].
func (s *Store) View(ctx context.Context, fn func(storage.Reader) error) error {
	return fault.OfStore(s.Store.View(ctx, fn))
}

// unknownTries is how often a transaction with an unknown outcome is repeated. All transactions of
// tasks compare before they write, so that no change happens twice.
const unknownTries = 8

// Update runs fn in a transaction that moves no money. It converts errors of the store to a
// [fault.Fault].
func (s *Store) Update(ctx context.Context, fn func(storage.Txn) error) error {
	var err error
	for range unknownTries {
		err = s.Store.Update(ctx, fn)
		if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrStopped) {
			break
		}
	}
	return fault.OfStore(err)
}

// Audited runs fn and writes an audit event in one transaction. fn may complete the event.
func (s *Store) Audited(ctx context.Context, event *audit.Event, fn func(t storage.Txn) (changed bool, err error)) error {
	var changed bool
	err := s.Update(ctx, func(t storage.Txn) (err error) {
		if changed, err = fn(t); err != nil || !changed {
			return err
		}
		return audit.Record(ctx, t, s.Now(), event)
	})
	if err == nil && changed {
		s.OnAudit(*event)
	}
	return err
}

// Durably calls fn until its change of a task is durable or the engine ends, and reports whether it
// is durable. It blocks meanwhile. It is for facts that only this process knows.
func (s *Store) Durably(what, task string, fn func(ctx context.Context) error) bool {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := fn(s.Life)
		if err == nil {
			return true
		}
		if s.Life.Err() != nil || s.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return false
		}
		s.Log.Error(what, zap.String("task_id", task), zap.Error(err))
		select {
		case <-time.After(pause):
		case <-s.Life.Done():
			return false
		}
	}
}
