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
	// window is how many due tasks are read and claimed at once.
	window = 64

	// maxTaken is how many tasks get a slot in one transaction.
	maxTaken = 16
)

// turn begins the work there is now, and returns when to look again.
func (d *driver) turn() (time.Duration, error) {
	b, found := d.backend(d.name)
	if !found { // a reload has removed it, and halts the driver
		return record.Idle, nil
	}
	wait, unfed := d.feed(b)
	next, err := d.look(b) // what waits and cannot be begun keeps nothing that runs
	return min(wait, next), errors.Join(unfed, err)
}

// feed delivers tasks that wait, as far as slots are free.
func (d *driver) feed(b Backend) (wait time.Duration, err error) {
	if until := d.pausedFor(); until > 0 {
		return until, nil
	}
	most := d.deliveries.available(maxTaken, maxDeliveries)
	if d.wasBusy() {
		most = d.deliveries.available(1, 1) // one tries whether it still is
	}
	if most == 0 {
		return record.Idle, nil // the next that ends nudges
	}
	taken, aside, err := d.take(b, most)
	for _, rec := range taken {
		d.sends(rec.User)
		d.begin(&d.deliveries, func() { d.deliverWaiting(rec) })
	}
	if len(taken) == most || aside > 0 { // there may be more behind them
		return 0, err
	}
	return record.Idle, err
}

// deliverWaiting sends a task that has waited.
func (d *driver) deliverWaiting(rec *record.Record) {
	job, err := d.job(d.store.Life, rec)
	if err != nil {
		d.store.Log.Error("a task that is to be sent cannot be read", zap.String("task_id", rec.ID), zap.Error(err))
		d.deferTask(rec, defaultBusyTimeout, backends.UpstreamError, 0, true)
		return
	}
	d.deliver(rec, job, nil)
}

// take gives slots to the tasks that wait longest, at most so many, and returns them. It puts tasks
// of delayed users aside, and returns how many.
func (d *driver) take(b Backend, most int) (taken []*record.Record, aside int, err error) {
	in := record.Queue.Under(b.Name)
	var load record.Load
	var some bool
	err = d.store.View(d.store.Life, func(r storage.Reader) error {
		keys, err := in.Keys(r, 1)
		if err != nil {
			return err
		}
		some = len(keys) > 0
		load, err = record.ReadLoad(r, b.Name)
		return err
	})
	if err != nil || !some || !load.HasSlot(b.MaxRunning) {
		return nil, 0, err
	}
	var unread []error
	given := make(map[string]int64) // by earlier runs, which may have been committed with an unknown outcome
	err = d.store.Update(d.store.Life, func(t storage.Txn) error {
		taken, unread, aside = nil, nil, 0
		tried := make(map[string]bool) // delayed users of whom one task is taken
		for id, fence := range given {
			rec, err := record.Tasks.Get(t, id)
			if err != nil {
				return err
			}
			if rec != nil && rec.Delivery == record.Sending && rec.Fence == fence && rec.Owner == d.store.Engine {
				taken = append(taken, rec)
			}
		}
		keys, err := in.Keys(t, most-len(taken)+maxUnreadable)
		if err != nil {
			return err
		}
		for _, key := range keys {
			l, err := record.ReadLoad(t, b.Name)
			if err != nil || !l.HasSlot(b.MaxRunning) || len(taken) == most {
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
			wait, delayed := d.delayed(rec.User)
			if wait > 0 || tried[rec.User] {
				tr, c.Pause = transition.PutAside, d.aside(rec.User, max(wait, transition.Interval(0, 0)))
			}
			done, err := d.writer.Apply(d.store.Life, t, tr, &c)
			switch {
			case err != nil:
				return err
			case !done:
			case tr == transition.PutAside:
				aside++
			default:
				tried[rec.User] = delayed
				given[rec.ID] = c.After.Fence
				taken = append(taken, c.After)
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err // if it was committed after all, the delivery is unknown when the lease ends
	}
	return taken, aside, errors.Join(unread...)
}

// maxUnreadable is how many tasks that cannot be read are skipped in one transaction.
const maxUnreadable = 16

// look begins looks at the tasks that are due, as far as the limits allow.
func (d *driver) look(b Backend) (wait time.Duration, err error) {
	polls, refused := d.polls.Admit(time.Now(), limit.Request{
		User:  limit.Subject{ID: d.name, Rates: limit.Rates{Units: limit.PerSecond(int64(b.PollsPerSecond))}},
		Units: 1,
	})
	if refused != nil {
		return refused.RetryAfter, nil
	}
	var claimed []*record.Record
	defer func() { polls.End(time.Now(), int64(len(claimed))) }()
	most := d.looks.available(int(min(1+polls.Status.Units.Remaining, window)), maxLooks)
	if most == 0 {
		return record.Idle, nil // the next that ends nudges
	}
	next, err := d.nextDue()
	if err != nil || next > 0 {
		return next, err
	}
	claimed, err = d.claimDue(most)
	for _, rec := range claimed {
		d.begin(&d.looks, func() { d.step(b, rec) })
	}
	return 0, err
}

// nextDue is how long it takes until a task of a backend is due.
func (d *driver) nextDue() (wait time.Duration, err error) {
	wait = record.Idle
	err = d.store.View(d.store.Life, func(r storage.Reader) error {
		keys, err := record.Due.Under(d.name).Keys(r, 1)
		if len(keys) > 0 {
			wait = min(record.Idle, max(0, time.UnixMilli(record.TimeBefore(keys[0])).Sub(d.store.Now())))
		}
		return err
	})
	return wait, err
}

// claimDue claims tasks that are due. A task that is being sent is due again when its lease ends.
func (d *driver) claimDue(most int) (claimed []*record.Record, err error) {
	in := record.Due.Under(d.name)
	var unread []error
	err = d.store.Update(d.store.Life, func(t storage.Txn) error {
		claimed, unread = nil, nil
		keys, err := in.Before(d.name, d.now()+1).Keys(t, most+maxUnreadable)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if len(claimed) == most {
				break
			}
			before := len(unread)
			rec, err := readable(t, key, &unread)
			if err == nil && rec == nil && len(unread) == before {
				err = t.Delete(key) // nothing leads to what does not exist
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

// step is one look at a claimed task.
func (d *driver) step(b Backend, rec *record.Record) {
	switch {
	case rec.Over() && rec.Ref != nil:
		d.watch(b, rec)
	case rec.Delivery == record.None:
		d.resume(b, rec)
	case rec.Delivery == record.Sending: // the lease has run out: the engine that sent it is gone
		d.lostTrack(b, rec)
	case rec.Delivery == record.Unknown:
		d.reconcile(b, rec)
	case rec.Ref == nil: // no code writes such a record; Verify reports it
		d.store.Log.Error("a task has no reference to be asked for by", zap.String("task_id", rec.ID))
		d.release(rec, record.Idle)
	default:
		d.poll(b, rec)
	}
}

// resume looks at a task that waits. The task fails if its deadline has passed, or if its backend
// has refused it for too long and takes others. Otherwise it goes on waiting, in the queue if its
// pause is over.
func (d *driver) resume(b Backend, rec *record.Record) {
	now := d.now()
	long := rec.Deferred() && rec.RefusedSince != 0 && now >= rec.RefusedSince+b.BusyTimeout.Milliseconds()
	switch {
	case now >= rec.Deadline:
		d.fail(rec, record.TimedOut)
	case long && !d.patient():
		d.fail(rec, refusedFor(rec.Refusal, b.BusyTimeout))
	default:
		d.move(transition.Requeue, transition.Change{Known: rec, BusyTimeout: b.BusyTimeout, Patient: d.patient()})
		d.Nudge()
	}
}

// refusedFor is why a task fails that its backend has refused for too long.
func refusedFor(reason backends.Reason, timeout time.Duration) *record.Error {
	if reason == backends.UpstreamBusy {
		return record.NewError(reason, fmt.Sprintf("the generation service was too busy to take the task for %v", timeout))
	}
	return record.NewError(backends.UpstreamError, fmt.Sprintf("the generation service has refused the task for %v", timeout))
}
