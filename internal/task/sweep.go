package task

import (
	"context"

	"github.com/caddy-modelgate/modelgate/storage"
)

// sweepMost is how many tasks one Sweep removes.
const sweepMost = 256

// Sweep removes tasks that have been over for longer than they are kept, with
// everything that leads to them. It is called now and then and does a bounded
// part of it.
func (e *Engine) Sweep(ctx context.Context) error {
	before := e.now() - e.config.Load().Kept.Milliseconds()
	if before < 0 {
		return nil
	}
	var keys [][]byte
	lo, _ := below(endPrefix)
	hi := keyOf(endPrefix, before+1)
	err := e.view(ctx, func(r storage.Reader) (err error) {
		keys, err = firstKeys(r, lo, hi, sweepMost)
		return err
	})
	if err != nil || len(keys) == 0 {
		return err
	}
	err = e.update(ctx, func(t storage.Txn) error {
		for _, key := range keys {
			if err := forget(t, lastID(key)); err != nil {
				return err
			}
		}
		return nil
	})
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
	if err := freeClaim(t, rec); err != nil {
		return err
	}
	if rec.Event {
		event, err := readEvent(t, id)
		if err != nil {
			return err
		}
		if event != nil {
			if err := replaceEvent(t, event, nil); err != nil {
				return err
			}
		}
	}
	return replace(t, rec, nil)
}
