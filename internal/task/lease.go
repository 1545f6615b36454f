package task

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

// release gives a claim back, with due as when to look again.
func (d *driver) release(rec *record, due func(r *record) int64) {
	var after *record
	err := d.engine.update(d.engine.life, func(t storage.Txn) (err error) {
		after, err = changeKnown(t, rec, func(r *record) bool {
			if !rec.fenced(r) {
				return false
			}
			r.release(due(r))
			return true
		})
		return err
	})
	if err != nil {
		d.engine.log.Warn("a look at a task is lost, it is looked at again", zap.String("task_id", rec.ID), zap.Error(err))
		return
	}
	if after != nil {
		d.engine.changed(rec, after)
	}
}

// fenced tells whether nobody has claimed the task since.
func (r *record) fenced(now *record) bool { return now.Fence == r.Fence && now.Owner == r.Owner }

// finish ends a task that was claimed. What fails here is found again when the
// lease has run out.
func (d *driver) finish(rec *record, o outcome) {
	if _, err := d.engine.finish(d.engine.life, rec, o); err != nil {
		d.engine.log.Warn("a task cannot be ended now, it is looked at again", zap.String("task_id", rec.ID), zap.Error(err))
	}
}

// keepLease renews the claim of something long until it is over, and ends its
// context when somebody else has claimed the task.
func (d *driver) keepLease(rec *record) (ctx context.Context, over func()) {
	ctx, cancel := context.WithCancel(d.engine.life)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(leaseFor / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			held := true
			err := d.engine.update(ctx, func(t storage.Txn) error {
				_, err := changeKnown(t, rec, func(r *record) bool {
					if held = rec.fenced(r); held {
						r.Lease = d.engine.now() + leaseFor.Milliseconds()
						r.Due = r.Lease
					}
					return held
				})
				return err
			})
			if err == nil && !held {
				cancel()
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}
