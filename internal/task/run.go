package task

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

const (
	// maxClaims is how many due tasks are claimed in one transaction.
	maxClaims = 64

	// maxSends is how many queued tasks get a slot in one transaction.
	maxSends = 16
)

// runOnce starts all work that is due and returns how long to wait before the next run.
func (d *driver) runOnce() (time.Duration, error) {
	b, found := d.backend(d.name)
	if !found { // a reload has removed it, and halts the driver
		return d.store.Idle(), nil
	}
	wait, sendErr := d.sendQueued(b)
	next, err := d.processDue(b) // also after an error: queued tasks must not delay running ones
	return min(wait, next), errors.Join(sendErr, err)
}

// sendQueued starts deliveries of queued tasks for the slots that are free.
func (d *driver) sendQueued(b Backend) (wait time.Duration, err error) {
	if until := d.pausedFor(); until > 0 {
		return until, nil
	}
	if d.store.Ready() != nil { // this node may have been ended: it must send nothing
		return time.Second, nil
	}
	maximum := d.deliveries.available(maxSends, maxDeliveries)
	if d.isBusy() {
		maximum = d.deliveries.available(1, 1) // one task tests whether the backend accepts again
	}
	if maximum == 0 {
		return d.store.Idle(), nil // a delivery that ends nudges the driver
	}
	claimed, aside, err := d.claimQueued(b, maximum)
	for _, rec := range claimed {
		d.noteSent(rec.User)
		d.begin(&d.deliveries, func() { d.deliverQueued(rec) })
	}
	if len(claimed) == maximum || aside > 0 { // the queue may hold more tasks
		return 0, err
	}
	return d.store.Idle(), err
}

// deliverQueued sends a task that was queued.
func (d *driver) deliverQueued(rec *record.Record) {
	job, err := d.job(d.store.Life, rec)
	if err != nil {
		d.store.Log.Error("cannot read a task that must be sent", zap.String("task_id", rec.ID), zap.Error(err))
		d.deferTask(rec, defaultBusyTimeout, backends.UpstreamError, 0, true)
		return
	}
	d.deliver(rec, job, nil)
}

// claimQueued gives slots to at most maximum queued tasks, oldest first, and returns them. aside is the
// number of deferred tasks of delayed users.
func (d *driver) claimQueued(b Backend, maximum int) (claimed []*record.Record, aside int, err error) {
	in := record.Queue.Under(b.Name)
	var load record.Load
	var queued bool
	err = d.store.View(d.store.Life, func(r storage.Reader) error {
		keys, err := in.Keys(r, 1)
		if err != nil {
			return err
		}
		queued = len(keys) > 0
		load, err = record.ReadLoad(r, b.Name)
		return err
	})
	if err != nil || !queued || !load.HasSlot(b.MaxRunning) {
		return nil, 0, err
	}
	var unread []error
	var ran bool
	var given map[string]int64  // fences of slots given by runs that may have been committed
	var deferred map[string]int // numbers of deferred tasks by user
	err = d.store.Update(d.store.Life, func(t storage.Txn) error {
		claimed, unread, aside, deferred = nil, nil, 0, make(map[string]int)
		if !d.store.Again(&ran) {
			given = make(map[string]int64)
		}
		tried := make(map[string]bool) // delayed users with a task in claimed
		for id, fence := range given {
			rec, err := record.Tasks.Get(t, id)
			if err != nil {
				return err
			}
			if rec != nil && rec.Delivery == record.Sending && rec.Fence == fence && rec.Owner == d.store.Engine {
				claimed = append(claimed, rec)
			}
		}
		keys, err := in.Keys(t, maximum-len(claimed)+maxUnreadable)
		if err != nil {
			return err
		}
		for _, key := range keys {
			l, err := record.ReadLoad(t, b.Name)
			if err != nil || !l.HasSlot(b.MaxRunning) || len(claimed) == maximum {
				return err
			}
			rec, err := readable(t, key, &unread)
			if err != nil {
				return err
			}
			if rec == nil {
				continue
			}
			tr, c := transition.Send, transition.Change{Known: rec, Before: rec, Counts: &l, BusyTimeout: b.BusyTimeout}
			wait, delayed := d.userDelay(rec.User)
			if wait > 0 || tried[rec.User] {
				tr, c.Pause = transition.SetAside, d.asidePause(rec.User, deferred[rec.User], max(wait, transition.Interval(0, 0)))
			}
			done, err := d.writer.Apply(d.store.Life, t, tr, &c)
			switch {
			case err != nil:
				return err
			case !done:
			case tr == transition.SetAside:
				aside++
				deferred[rec.User]++
			default:
				tried[rec.User] = delayed
				given[rec.ID] = c.After.Fence
				claimed = append(claimed, c.After)
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err // if the transaction was committed, the delivery is unknown when the lease ends
	}
	d.noteAside(deferred)
	return claimed, aside, errors.Join(unread...)
}

// maxUnreadable is how many tasks that cannot be read are skipped in one transaction.
const maxUnreadable = 16

// processDue claims tasks that are due, within the limits, and starts processing them.
func (d *driver) processDue(b Backend) (wait time.Duration, err error) {
	polls, refused := d.polls.Admit(time.Now(), limit.Request{
		User:  limit.Subject{ID: d.name, Rates: limit.Rates{Units: d.pollsOf(b)}},
		Units: 1,
	})
	if refused != nil {
		return refused.RetryAfter, nil
	}
	var claimed []*record.Record
	defer func() { polls.End(time.Now(), int64(len(claimed))) }()
	maximum := d.processing.available(int(min(1+polls.Status.Units.Remaining, maxClaims)), maxProcessing)
	if maximum == 0 {
		return d.store.Idle(), nil // a task whose processing ends nudges the driver
	}
	next, err := d.nextDue()
	if err != nil || next > 0 {
		return next, err
	}
	claimed, err = d.claimDue(maximum)
	for _, rec := range claimed {
		d.begin(&d.processing, func() { d.process(b, rec) })
	}
	return 0, err
}

// nextDue returns how long it takes until a task of the backend is due.
func (d *driver) nextDue() (wait time.Duration, err error) {
	err = d.store.View(d.store.Life, func(r storage.Reader) error {
		wait = d.store.Idle()
		keys, err := record.Due.Under(d.name).Keys(r, d.lookAhead())
		for _, key := range keys {
			wait = min(wait, max(0, d.dueAt(key).Sub(d.store.Now())))
		}
		if len(keys) == maxAhead { // a task of this node may follow
			wait = min(wait, lookAgain)
		}
		return err
	})
	return wait, err
}

const (
	// maxAhead is how many tasks a driver reads to find the next one that this node processes first.
	maxAhead = 64

	// lookAgain is the time until a driver reads again if it has read maxAhead tasks.
	lookAgain = 100 * time.Millisecond
)

// lookAhead returns how many tasks must be read to find the next one that this node processes.
func (d *driver) lookAhead() int {
	if d.store.LiveNodes() > 1 {
		return maxAhead
	}
	return 1
}

// dueAt returns when this node processes the task of an index key; see [record.Store.Yield].
func (d *driver) dueAt(key []byte) time.Time {
	return time.UnixMilli(record.TimeBefore(key)).Add(d.store.Yield(record.LastID(key)))
}

// claimDue claims tasks that are due. A task that is being sent is due again when its lease ends.
func (d *driver) claimDue(maximum int) (claimed []*record.Record, err error) {
	in := record.Due.Under(d.name)
	var unread []error
	err = d.store.Update(d.store.Life, func(t storage.Txn) error {
		claimed, unread = nil, nil
		now := d.store.Now()
		keys, err := in.Before(d.name, now.UnixMilli()+1).Keys(t, maximum+maxUnreadable+d.lookAhead()-1)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if d.dueAt(key).After(now) {
				continue // another node processes it first
			}
			if len(claimed) == maximum {
				break
			}
			before := len(unread)
			rec, err := readable(t, key, &unread)
			if err == nil && rec == nil && len(unread) == before {
				err = t.Delete(key) // the task does not exist
			}
			if err != nil {
				return err
			}
			if rec == nil {
				continue
			}
			c := transition.Change{Known: rec, Before: rec}
			mine, err := d.writer.Apply(d.store.Life, t, transition.Claim, &c)
			switch {
			case err != nil:
				return err
			case mine:
				claimed = append(claimed, c.After)
				continue
			}
			if _, err := d.writer.Apply(d.store.Life, t, transition.Postpone, &c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claimed, errors.Join(unread...)
}

// process does the next step of a claimed task.
func (d *driver) process(b Backend, rec *record.Record) {
	switch {
	case rec.Over() && rec.Ref != nil:
		d.watchJob(b, rec)
	case rec.Delivery == record.None:
		d.resumeQueued(b, rec)
	case rec.Delivery == record.Sending: // the lease has expired: the engine that sent the job is gone
		d.markUnknown(b, rec, d.searchPause())
	case rec.Delivery == record.Unknown:
		d.reconcile(b, rec)
	case rec.Ref == nil: // no code writes such a record; Verify reports it
		d.store.Log.Error("a task cannot be polled: it has no reference", zap.String("task_id", rec.ID))
		d.release(rec, record.Idle)
	default:
		d.poll(b, rec)
	}
}

// resumeQueued checks a queued task. The task fails if its deadline has passed, or if its backend has
// refused it for too long but accepts others. Otherwise the task keeps waiting; if its pause is over,
// it returns to the queue.
func (d *driver) resumeQueued(b Backend, rec *record.Record) {
	now := d.now()
	refusedTooLong := rec.Deferred() && rec.RefusedSince != 0 && now >= rec.RefusedSince+b.BusyTimeout.Milliseconds()
	switch {
	case now >= rec.Deadline:
		d.fail(rec, record.TimedOut)
	case refusedTooLong && !d.postponesFailure():
		d.fail(rec, refusalError(rec.Refusal, b.BusyTimeout))
	default:
		d.applyClaimed(transition.Requeue, transition.Change{Known: rec, BusyTimeout: b.BusyTimeout, PostponeFailure: d.postponesFailure()})
		d.Nudge()
	}
}

// refusalError returns the error of a task that its backend has refused for longer than timeout.
func refusalError(reason backends.Reason, timeout time.Duration) *record.Error {
	if reason == backends.UpstreamBusy {
		return record.NewError(reason, fmt.Sprintf("the generation service was too busy to take the task for %v", timeout))
	}
	return record.NewError(backends.UpstreamError, fmt.Sprintf("the generation service has refused the task for %v", timeout))
}
