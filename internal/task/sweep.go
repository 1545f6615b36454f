package task

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

const (
	// maxSwept is how many tasks are removed in one transaction, and sweepFor how
	// long one Sweep goes on with that.
	maxSwept = 256
	sweepFor = 5 * time.Second

	// maxExpired is how many tasks of one backend it looks at that nobody drives.
	maxExpired = 1000
)

// Sweep removes tasks that have been over for longer than they are kept, with
// everything that leads to them, and ends those whose time is over and which
// nobody drives. It is called now and then and does a bounded part of it.
func (e *Engine) Sweep(ctx context.Context) error {
	return errors.Join(e.expire(ctx), e.clear(ctx))
}

// places are how far the tasks of backends have been looked at.
type cursors struct {
	mu  sync.Mutex
	key map[string][]byte // of the first that was not, by the name of the backend
}

// expire ends tasks of backends that are not configured any more when their time
// is over: what they hold must not be held for ever. What becomes of their jobs
// nobody can ask.
func (e *Engine) expire(ctx context.Context) error {
	all, err := e.Backends(ctx)
	if err != nil {
		return err
	}
	e.undriven.mu.Lock()
	defer e.undriven.mu.Unlock()
	if e.undriven.key == nil {
		e.undriven.key = make(map[string][]byte)
	}
	var failed []error // one task's trouble keeps no other
	for _, b := range all {
		if !b.Abandoned() {
			continue
		}
		late, err := e.late(ctx, b.Name)
		if err != nil {
			failed = append(failed, err)
		}
		for _, rec := range late {
			e.log.Warn("the time of a task is over, and its backend is not configured any more",
				zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
			if _, err := e.finish(ctx, rec, outcome{state: Failed, failure: timeout, only: rec.fenced}); err != nil {
				failed = append(failed, err)
				if !e.ofOne(ctx, err) {
					return errors.Join(failed...)
				}
			}
		}
	}
	return errors.Join(failed...)
}

// ofOne tells whether an error is that of one task, beside which others may do
// better, and not of the store or of the end.
func (e *Engine) ofOne(ctx context.Context, err error) bool {
	return ctx.Err() == nil && e.store.Err() == nil &&
		!errors.Is(err, storage.ErrLowSpace) && !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrClosed)
}

// late returns tasks of a backend whose time is over, of those that are looked at
// this time, beside an error of those that cannot be read.
func (e *Engine) late(ctx context.Context, backend string) (late []*record, err error) {
	now := e.now()
	in := due.Under(backend).Before(backend, now+1)
	if from := e.undriven.key[backend]; from != nil {
		in = in.FromKey(from)
	}
	delete(e.undriven.key, backend) // from the beginning, unless there are more
	var unread error
	err = e.view(ctx, func(r storage.Reader) error {
		late, unread = nil, nil
		keys, err := in.Keys(r, maxExpired+1)
		if err != nil {
			return err
		}
		if len(keys) > maxExpired {
			e.undriven.key[backend] = keys[maxExpired]
			keys = keys[:maxExpired]
		}
		for _, key := range keys {
			rec, err := readTask(r, lastID(key))
			if errors.Is(err, storage.ErrUnreadable) {
				unread = errors.Join(unread, err)
				continue
			}
			if err != nil {
				return err
			}
			if rec != nil && !rec.over() && now >= rec.Deadline && now >= rec.Lease {
				late = append(late, rec)
			}
		}
		return nil
	})
	return late, errors.Join(unread, err)
}

// clear removes tasks that have been over for longer than they are kept, for a
// while.
func (e *Engine) clear(ctx context.Context) error {
	before := e.now() - e.config.Load().Kept.Milliseconds()
	if before < 0 {
		return nil
	}
	in := ended.Under().Before(before + 1)
	var failed []error
	for begun := time.Now(); time.Since(begun) < sweepFor; {
		var keys [][]byte
		err := e.view(ctx, func(r storage.Reader) (err error) {
			keys, err = in.Keys(r, maxSwept)
			return err
		})
		if err != nil || len(keys) == 0 {
			return errors.Join(append(failed, err)...)
		}
		if err := e.forgetAll(ctx, keys); err != nil {
			failed = append(failed, err)
			if !e.ofOne(ctx, err) {
				break
			}
		}
		if ctx.Err() != nil {
			break
		}
		in = in.FromKey(append(keys[len(keys)-1], 0))
	}
	return errors.Join(failed...)
}

// forgetAll removes tasks, one by one where not all of them can be removed: one
// that cannot be read keeps no other.
func (e *Engine) forgetAll(ctx context.Context, keys [][]byte) error {
	err := e.update(ctx, func(t storage.Txn) error {
		for _, key := range keys {
			if err := forget(t, lastID(key)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && len(keys) > 1 && e.ofOne(ctx, err) {
		var failed []error
		for _, key := range keys {
			if err := e.forgetAll(ctx, [][]byte{key}); err != nil {
				if failed = append(failed, err); !e.ofOne(ctx, err) {
					break
				}
			}
		}
		return errors.Join(failed...)
	}
	if err == nil {
		for _, key := range keys {
			e.cache.drop(lastID(key))
		}
	}
	return err
}

// forget removes a task that is over.
func forget(t storage.Txn, id string) error {
	rec, err := readTask(t, id)
	if err != nil || rec == nil || !rec.over() {
		return err
	}
	if err := freeIdempotencyKey(t, rec); err != nil {
		return err
	}
	if rec.Event {
		event, err := readEvent(t, id)
		if err != nil {
			return err
		}
		if event != nil {
			if err := events.Put(t, event, nil); err != nil {
				return err
			}
		}
	}
	return replace(t, rec, nil)
}
