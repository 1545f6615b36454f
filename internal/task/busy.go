package task

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/storage"
)

// refusedNow notes that a backend has not taken a task and may take it later. The
// task leaves the queue for a pause of its own and returns to the end of the queue,
// so that it stops no other.
func (e *Engine) refusedNow(b Backend, rec *record, refusal *backends.Error) {
	own, asked := true, refusal.RetryAfter
	if d := e.driverOf(rec.Backend); d != nil {
		own = d.refuse(rec, refusal, e.now())
		if wait, delayed := d.delayed(rec.User); delayed {
			asked = max(asked, wait+interval(0, 0)) // another task of the user is tried first
		}
	}
	if refusal.Kind == backends.Refused {
		if own {
			e.unmet(zap.WarnLevel, "a generation service refuses a task: it is tried again later", rec, refusal)
		} else {
			e.unmet(zap.ErrorLevel, "a generation service does not accept the gateway's account: its tasks wait", rec, refusal)
		}
	}
	e.deferTask(rec, b.BusyTimeout, refusal.Reason, asked, own)
}

// refuse counts a refusal, and pauses the backend where other tasks would be refused
// too. It tells whether the refusal speaks of this task or its user alone: its backend
// has taken others since it refused the task first, or has refused no other in a row;
// with 403, none of another user. A refusal of the account (401, 402) never does.
func (d *driver) refuse(rec *record, refusal *backends.Error, now int64) (own bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	account := refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusPaymentRequired
	takesOthers := !account && rec.RefusedSince != 0 && d.accepted >= rec.RefusedSince
	if !account && refusal.Kind == backends.Refused {
		return takesOthers || d.forbid(rec.User)
	}
	d.suspected = d.suspected || account
	failures := d.busy
	d.busy++
	if takesOthers {
		return true
	}
	d.several = d.several || d.refused != "" && d.refused != rec.ID
	d.refused = rec.ID
	if time.Now().Before(d.paused) { // several were sent at once
		return !d.takesNothing()
	}
	if rec.RefusedSince == 0 {
		failures = min(failures, mostFirstFailures) // there may be others behind it that are taken
	}
	wait := interval(0, failures)
	if refusal.RetryAfter > 0 { // never an instant: it would be asked without end
		wait = max(min(refusal.RetryAfter, mostPause), interval(0, 0))
	}
	d.paused = time.Now().Add(wait)
	return !d.takesNothing()
}

// takesNothing tells whether the refusals of a backend since it has taken a task speak
// of the backend or the account, and not of tasks. d.mu is held.
func (d *driver) takesNothing() bool { return d.several || d.suspected }

// patient tells whether no task fails because it was refused for too long.
func (d *driver) patient() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.takesNothing()
}

// mostFirstFailures bounds the pause of a backend after the first refusal of a task, as
// an index of [failingPaces].
const mostFirstFailures = 3

// deferTask puts a task aside that its backend refused for now. Each refusal makes its
// pause longer, and asked is the least pause. Unless the refusal is the task's own,
// the time after which it fails begins again.
func (e *Engine) deferTask(rec *record, timeout time.Duration, reason backends.Reason, asked time.Duration, own bool) {
	var after *record
	e.durably("noting a refusal for now", rec.ID, func(ctx context.Context) error {
		return e.update(ctx, func(t storage.Txn) (err error) {
			after, err = changeKnown(t, rec, func(r *record) bool {
				if r.Handover != Sending || r.Attempt != rec.Attempt {
					return false
				}
				now := e.now()
				pause := max(interval(0, r.Refusals), min(asked, mostPause))
				if r.RefusedSince == 0 || !own {
					r.RefusedSince = now
				}
				r.Refusals++
				r.Refusal, r.Resume = reason, now+pause.Milliseconds()
				r.Handover, r.Woken = None, false
				r.release(r.lookWaiting(timeout))
				return true
			})
			return err
		})
	})
	if after != nil {
		e.changed(rec, after)
	}
	e.nudge(rec.Backend)
}

// putBack returns a task to its place in the queue: nothing was sent.
func (e *Engine) putBack(rec *record) {
	e.durably("putting a task back", rec.ID, func(ctx context.Context) error {
		return e.update(ctx, func(t storage.Txn) error {
			_, err := changeKnown(t, rec, func(r *record) bool {
				if r.Handover != Sending || r.Attempt != rec.Attempt {
					return false
				}
				r.Handover, r.Woken = None, false
				r.release(r.Deadline)
				return true
			})
			return err
		})
	})
}

// calm forgets the refusals of a backend: it has taken a task.
func (e *Engine) calm(rec *record) {
	d := e.driverOf(rec.Backend)
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.accepted = e.now()
	delete(d.delays, rec.User)
	d.forbade, d.suspected = "", false
	if d.busy != 0 {
		d.busy, d.refused, d.several = 0, "", false
		d.nudge() // others have waited for that
	}
}

// paused tells whether a backend is too busy.
func (e *Engine) paused(backend string) bool {
	d := e.driverOf(backend)
	return d != nil && d.pausedFor() > 0
}

// open tells whether a task of a user may be sent at once: nothing has it wait in the
// queue.
func (e *Engine) open(backend, user string) bool {
	d := e.driverOf(backend)
	if d == nil {
		return true
	}
	_, delayed := d.delayed(user)
	return !delayed && !d.wasBusy()
}

// driverOf returns the driver of a backend; nil: it is not configured.
func (e *Engine) driverOf(backend string) *driver {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drivers[backend]
}

// wasBusy tells whether the backend has taken nothing since it refused a task.
func (d *driver) wasBusy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy > 0
}

func (d *driver) pausedFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Until(d.paused)
}
