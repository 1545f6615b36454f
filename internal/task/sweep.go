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
	// maxSwept is how many tasks are removed in one transaction, and sweepFor how
	// long one Sweep goes on with that.
	maxSwept = 256
	sweepFor = 5 * time.Second

	// maxExpired is how many tasks of one backend without a driver one Sweep looks at.
	maxExpired = 1000
)

// Sweep removes tasks past their retention, with everything that belongs to them, and ends tasks of
// unconfigured backends past their deadline. It is called now and then and does a bounded part of
// the work.
func (e *Engine) Sweep(ctx context.Context) error {
	return errors.Join(e.expire(ctx), e.clear(ctx))
}

// expire ends tasks of backends that are not configured any more when their deadline has passed:
// their money must not be held for ever. Their jobs cannot be polled.
func (e *Engine) expire(ctx context.Context) error {
	all, err := e.Backends(ctx)
	if err != nil {
		return err
	}
	e.sweeping.Lock()
	defer e.sweeping.Unlock()
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
			e.store.Log.Warn("the time of a task is over, and its backend is not configured any more",
				zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
			if _, _, err := e.apply(ctx, transition.Expire, transition.Change{Known: rec, Failure: record.TimedOut}); err != nil {
				failed = append(failed, err)
				if !e.ofOne(ctx, err) {
					return errors.Join(failed...)
				}
			}
		}
	}
	return errors.Join(failed...)
}

// ofOne reports whether an error concerns one task only, and not the store or the end of ctx.
func (e *Engine) ofOne(ctx context.Context, err error) bool {
	return ctx.Err() == nil && e.store.Err() == nil &&
		!errors.Is(err, storage.ErrLowSpace) && !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrClosed)
}

// late returns tasks of a backend whose time is over, of those that are looked at
// this time, beside an error of those that cannot be read.
func (e *Engine) late(ctx context.Context, backend string) (late []*record.Record, err error) {
	now := e.now()
	in := record.Due.Under(backend).Before(backend, now+1)
	if from := e.unswept[backend]; from != nil {
		in = in.FromKey(from)
	}
	delete(e.unswept, backend) // from the beginning, unless there are more
	var unread []error
	err = e.store.View(ctx, func(r storage.Reader) error {
		late, unread = nil, nil
		keys, err := in.Keys(r, maxExpired+1)
		if err != nil {
			return err
		}
		if len(keys) > maxExpired {
			e.unswept[backend] = keys[maxExpired]
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

// clear removes tasks that have been over for longer than they are kept, for a
// while.
func (e *Engine) clear(ctx context.Context) error {
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
			e.cache.drop(record.LastID(key))
		}
	}
	return err
}
