package task

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

// core is what the engine and the drivers of its backends have in common.
type core struct {
	store  *record.Store
	ledger *ledger.Ledger
	writer *transition.Writer
	sender *callback.Sender

	config   atomic.Pointer[config]
	cache    cache
	changes  watch
	counters counters
	polls    *limit.RateLimiter // by the names of backends

	noting sync.Map // id of a task that a backend has accepted → chan struct{}, closed when that is noted

	// nudgeDriverBy makes the driver of a backend look for work at a time at the latest, in Unix
	// milliseconds.
	nudgeDriverBy func(backend string, at int64)
}

func (c *core) now() int64 { return c.store.Milli() }

// backend returns a backend that is configured.
func (c *core) backend(name string) (Backend, bool) {
	b, found := c.config.Load().backends[name]
	return b, found
}

// nudgeDriver makes the driver of a backend look for work.
func (c *core) nudgeDriver(backend string) { c.nudgeDriverBy(backend, 0) }

// apply carries out a transition of a known task in a transaction of its own, and tells those who
// wait for a change of the task. It returns the task as it is then, nil if there is none, and
// whether the transition was carried out.
func (c *core) apply(ctx context.Context, tr *transition.Row, change transition.Change) (after *record.Record, done bool, err error) {
	var was *record.Record // before the first run
	var event *audit.Event
	run := func(t storage.Txn) (err error) {
		this := change
		if this.Before, err = record.Tasks.Reread(t, change.Known); err != nil {
			return err
		}
		was = cmp.Or(was, this.Before)
		done, err = c.writer.Apply(ctx, t, tr, &this)
		after, event = this.After, this.Event
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
		if !change.Known.Over() { // what is known may be old: an earlier run may have ended it
			c.changes.notify(after.ID)
			c.nudgeDriver(after.Backend)
			if after.Event {
				c.sender.Due(after.User, after.Key, after.Completed)
			}
		}
	}
	return after, done, nil
}

// note is apply of what is known here alone, such as the answer of a backend: it tries until that
// is durable or the engine ends. It reports whether it is durable.
func (c *core) note(tr *transition.Row, change transition.Change) (after *record.Record, noted bool) {
	noted = c.store.Durably("noting a task: "+tr.Name, change.Known.ID, func(ctx context.Context) (err error) {
		after, _, err = c.apply(ctx, tr, change)
		return err
	})
	return after, noted
}

// wake brings the next poll of a task forward, if it is at its backend.
func (c *core) wake(ctx context.Context, id string) error {
	_, _, err := c.apply(ctx, transition.Wake, transition.Change{Known: &record.Record{ID: id}})
	return err
}

// readable returns the task to which an index key leads; nil if there is none, or if it cannot be
// read: then the error is added to unread.
func readable(r storage.Reader, key []byte, unread *[]error) (*record.Record, error) {
	rec, err := record.Tasks.Get(r, record.LastID(key))
	if errors.Is(err, storage.ErrUnreadable) {
		*unread = append(*unread, err)
		return nil, nil
	}
	return rec, err
}

// counters count what an operator must know. They begin anew with the process.
type counters struct {
	polls           atomic.Int64 // questions to backends
	pollErrors      atomic.Int64 // polls without an answer
	unknownStatuses atomic.Int64 // polls that were answered by an unknown status
	losses          atomic.Int64 // jobs that were made without a charge

	submitted perType // tasks that were made
	succeeded perType // and how they ended
	failed    perType
	takenBack perType // refused in the answer to their submission
}

// perType is a count for each type of task.
type perType struct{ image, video atomic.Int64 }

func (p *perType) add(kind backends.JobKind) {
	if kind.Makes() == backends.ImageFile {
		p.image.Add(1)
	} else {
		p.video.Add(1)
	}
}

func (p *perType) load() map[backends.MediaType]int64 {
	return map[backends.MediaType]int64{backends.ImageFile: p.image.Load(), backends.VideoFile: p.video.Load()}
}

// count counts the end of a task.
func (f *counters) count(rec *record.Record) {
	if rec.State == record.Success {
		f.succeeded.add(rec.Kind)
	} else {
		f.failed.add(rec.Kind)
	}
}
