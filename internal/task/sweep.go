package task

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

const (
	// maxSwept is how many tasks are removed in one transaction. sweepFor is the
	// maximum time that one Sweep removes tasks.
	maxSwept = 256
	sweepFor = 5 * time.Second

	// maxExpired is how many tasks of one unconfigured backend one Sweep reads.
	maxExpired = 1000
)

// Sweep removes tasks past their retention with all their records, and ends tasks of unconfigured
// backends past their deadline. One call does a bounded part of the work; call it periodically.
func (e *Engine) Sweep(ctx context.Context) error {
	return errors.Join(e.expire(ctx), e.removeExpired(ctx))
}

// expire ends tasks of unconfigured backends past their deadline, so that their money is not held
// for ever. Their jobs cannot be polled.
func (e *Engine) expire(ctx context.Context) error {
	all, err := e.Backends(ctx)
	if err != nil {
		return err
	}
	e.sweeping.Lock()
	defer e.sweeping.Unlock()
	var failed []error // an error of one task does not stop the others
	for _, b := range all {
		if !b.Abandoned() {
			continue
		}
		late, err := e.pastDeadline(ctx, b.Name)
		if err != nil {
			failed = append(failed, err)
		}
		for _, rec := range late {
			e.store.Log.Warn("a task of an unconfigured backend has passed its deadline",
				zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
			if _, _, err := e.apply(ctx, transition.Expire, transition.Change{Known: rec, Failure: record.TimedOut}); err != nil {
				failed = append(failed, err)
				if !e.concernsOneTask(ctx, err) {
					return errors.Join(failed...)
				}
			}
		}
	}
	return errors.Join(failed...)
}

// concernsOneTask reports whether an error concerns only one task, and not the store or ctx.
func (e *Engine) concernsOneTask(ctx context.Context, err error) bool {
	return ctx.Err() == nil && e.store.Err() == nil &&
		!errors.Is(err, storage.ErrLowSpace) && !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrClosed) &&
		!errors.Is(err, storage.ErrUnreachable)
}

// pastDeadline returns tasks of a backend past their deadline. It reads at most maxExpired tasks. The
// error reports those that cannot be read.
func (e *Engine) pastDeadline(ctx context.Context, backend string) (late []*record.Record, err error) {
	now := e.now()
	in := record.Due.Under(backend).Before(backend, now-e.expiryDelay().Milliseconds()+1)
	if from := e.sweepFrom[backend]; from != nil {
		in = in.FromKey(from)
	}
	delete(e.sweepFrom, backend) // the next sweep starts from the beginning, unless there are more
	var unread []error
	err = e.store.View(ctx, func(r storage.Reader) error {
		late, unread = nil, nil
		keys, err := in.Keys(r, maxExpired+1)
		if err != nil {
			return err
		}
		if len(keys) > maxExpired {
			e.sweepFrom[backend] = keys[maxExpired]
			keys = keys[:maxExpired]
		}
		for _, key := range keys {
			rec, err := readable(r, key, &unread)
			if err != nil {
				return err
			}
			if rec != nil && !rec.Over() && now >= rec.Deadline && now >= rec.Lease {
				late = append(late, rec)
			}
		}
		return nil
	})
	return late, errors.Join(errors.Join(unread...), err)
}

// removeExpired removes tasks past their retention, for at most sweepFor.
func (e *Engine) removeExpired(ctx context.Context) error {
	before := e.now() - e.config.Load().Kept.Milliseconds()
	if before < 0 {
		return nil
	}
	in := record.Ended.Under().Before(before + 1)
	var failed []error
	for begun := time.Now(); time.Since(begun) < sweepFor; {
		var keys [][]byte
		err := e.store.View(ctx, func(r storage.Reader) (err error) {
			keys, err = in.Keys(r, maxSwept)
			return err
		})
		if err != nil || len(keys) == 0 {
			return errors.Join(append(failed, err)...)
		}
		if err := e.removeAll(ctx, keys); err != nil {
			failed = append(failed, err)
			if !e.concernsOneTask(ctx, err) {
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

// removeAll removes tasks. If that fails because of one of them, it removes them
// one by one, so that an unreadable task does not keep others.
func (e *Engine) removeAll(ctx context.Context, keys [][]byte) error {
	err := e.store.Update(ctx, func(t storage.Txn) error {
		for _, key := range keys {
			rec, err := record.Tasks.Get(t, record.LastID(key))
			if err == nil && rec != nil {
				_, err = e.writer.Apply(ctx, t, transition.Forget, &transition.Change{Known: rec, Before: rec})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && len(keys) > 1 && e.concernsOneTask(ctx, err) {
		var failed []error
		for _, key := range keys {
			if err := e.removeAll(ctx, [][]byte{key}); err != nil {
				if failed = append(failed, err); !e.concernsOneTask(ctx, err) {
					break
				}
			}
		}
		return errors.Join(failed...)
	}
	if err == nil {
		for _, key := range keys {
			e.cache.drop(record.LastID(key))
		}
	}
	return err
}
