package task

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

// core is the state that the engine and the drivers of its backends share.
type core struct {
	store  *record.Store
	ledger *ledger.Ledger
	writer *transition.Writer
	sender *callback.Sender

	config   atomic.Pointer[config]
	cache    cache
	changes  watch
	counters counters
	polls    *limit.RateLimiter // by backend

	accepting sync.Map // id of a task that a backend has accepted → chan struct{}, closed when this is durable

	// nudgeDriverBy makes the driver of a backend run not later than a time in Unix milliseconds.
	nudgeDriverBy func(backend string, at int64)
}

func (c *core) now() int64 { return c.store.Milli() }

// backend returns a configured backend.
func (c *core) backend(name string) (Backend, bool) {
	b, found := c.config.Load().backends[name]
	return b, found
}

// nudgeDriver makes the driver of a backend run now.
func (c *core) nudgeDriver(backend string) { c.nudgeDriverBy(backend, 0) }

// apply carries out a transition of a known task in a new transaction, and notifies the callers that
// wait for a change of the task. It returns the task after the transaction (nil: there is none) and
// whether the transition was carried out.
func (c *core) apply(ctx context.Context, tr *transition.Row, change transition.Change) (after *record.Record, done bool, err error) {
	var was *record.Record // before the first run that may have been committed
	var ran bool
	var event *audit.Event
	run := func(t storage.Txn) (err error) {
		this := change
		if this.Before, err = record.Tasks.Reread(t, change.Known); err != nil {
			return err
		}
		if again := c.store.Again(&ran); !again || was == nil {
			was = this.Before
		}
		done, err = c.writer.Apply(ctx, t, tr, &this)
		after, event = this.After, this.Event
		if err == nil && done && this.Before != nil && this.Before.Over() {
			err = c.store.Tell(t, record.TopicOver+this.Before.ID) // other nodes may have it in their cache
		}
		return err
	}
	if tr.MovesMoney() {
		err = c.ledger.Update(ctx, change.Known.User, nil, func(t *ledger.Txn) error { return run(t) })
	} else {
		err = c.store.Update(ctx, run)
	}
	if err != nil {
		return nil, false, err
	}
	if event != nil {
		c.store.OnAudit(*event)
	}
	switch {
	case after == nil:
	case !after.Over():
		if was.Status() != after.Status() || was.Percent() != after.Percent() {
			c.changes.notify(after.ID)
		}
		c.nudgeDriverBy(after.Backend, after.Due)
	default:
		if done && !was.Over() {
			c.counters.count(after)
		}
		c.cache.put(after)
		if !change.Known.Over() { // not was: an earlier run of the transaction may have ended the task
			c.changes.notify(after.ID)
			c.nudgeDriver(after.Backend)
			if after.Event {
				c.sender.Due(after.User, after.Key, after.Completed)
			}
		}
	}
	return after, done, nil
}

// applyDurably calls apply until the change is durable or the engine ends, and reports whether it is
// durable. It is for facts that only this process knows, such as the answer of a backend.
func (c *core) applyDurably(tr *transition.Row, change transition.Change) (after *record.Record, durable bool) {
	durable = c.store.Durably("write a change of a task: "+tr.Name, change.Known.ID, func(ctx context.Context) (err error) {
		after, _, err = c.apply(ctx, tr, change)
		return err
	})
	return after, durable
}

// wake brings the next poll of a task forward if the backend has its job.
func (c *core) wake(ctx context.Context, id string) error {
	_, _, err := c.apply(ctx, transition.Wake, transition.Change{Known: &record.Record{ID: id}})
	return err
}

// readable returns the task of an index key. It returns nil if there is none. If the task cannot be
// read, it returns nil too and appends the error to unread.
func readable(r storage.Reader, key []byte, unread *[]error) (*record.Record, error) {
	rec, err := record.Tasks.Get(r, record.LastID(key))
	if errors.Is(err, storage.ErrUnreadable) {
		*unread = append(*unread, err)
		return nil, nil
	}
	return rec, err
}
