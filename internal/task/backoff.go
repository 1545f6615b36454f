package task

import (
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

// refusedNow notes that a backend has refused a task that it may take later. The task leaves the
// queue for a pause and returns to its end, so that it blocks no other.
func (d *driver) refusedNow(b Backend, rec *record.Record, refusal *backends.Error) {
	own, asked := d.refuse(rec, refusal), refusal.RetryAfter
	if wait, delayed := d.delayed(rec.User); delayed {
		asked = max(asked, wait+transition.Interval(0, 0)) // another task of the user is tried first
	}
	if refusal.Kind == backends.Refused {
		if own {
			d.logBackendError(zap.WarnLevel, "a generation service refuses a task: it is tried again later", rec, refusal)
		} else {
			d.logBackendError(zap.ErrorLevel, "a generation service does not accept the gateway's account: its tasks wait", rec, refusal)
		}
	}
	d.deferTask(rec, b.BusyTimeout, refusal.Reason, asked, own)
}

// refuse counts a refusal, and pauses the backend if it would refuse other tasks too. It reports
// whether the refusal concerns this task or its user only: the backend has taken others since it
// first refused the task, or it has refused no other in a row; with 403, none of another user. A
// refusal of the account (401, 402) always concerns all tasks.
func (d *driver) refuse(rec *record.Record, refusal *backends.Error) (own bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	account := refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusPaymentRequired
	takesOthers := !account && rec.RefusedSince != 0 && d.acceptedAt >= rec.RefusedSince
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
		failures = min(failures, maxFirstFailures) // there may be others behind it that are taken
	}
	wait := transition.Interval(0, failures)
	if refusal.RetryAfter > 0 { // never an instant: it would be asked without end
		wait = max(min(refusal.RetryAfter, transition.MaxPause), transition.Interval(0, 0))
	}
	d.paused = time.Now().Add(wait)
	return !d.takesNothing()
}

// takesNothing reports whether the refusals since the backend took a task concern the backend or
// the account. d.mu is held.
func (d *driver) takesNothing() bool { return d.several || d.suspected }

// patient reports whether tasks do not fail for being refused too long.
func (d *driver) patient() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.takesNothing()
}

// maxFirstFailures bounds the pause of a backend after the first refusal of a task, as an index of
// [ErrorIntervals].
const maxFirstFailures = 3

// deferTask puts a task aside that its backend refused for now. asked is the least pause. Unless
// the refusal is the task's own, the time after which the task fails begins again.
func (d *driver) deferTask(rec *record.Record, timeout time.Duration, reason backends.Reason, asked time.Duration, own bool) {
	d.note(transition.Defer, transition.Change{Known: rec, BusyTimeout: timeout, Reason: reason, Pause: asked, Patient: !own})
	d.nudgeDriver(d.name)
}

// calm forgets the refusals of a backend: it has taken a task.
func (d *driver) calm(rec *record.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acceptedAt = d.now()
	delete(d.delays, rec.User)
	d.forbade, d.suspected = "", false
	if d.busy != 0 {
		d.busy, d.refused, d.several = 0, "", false
		d.Nudge() // others have waited for that
	}
}

// open reports whether a task of a user may be sent at once, without waiting in the queue.
func (d *driver) open(user string) bool {
	_, delayed := d.delayed(user)
	return !delayed && !d.wasBusy()
}

// wasBusy reports whether the backend has taken nothing since it refused a task.
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

// A 403 may speak of one job, of one model or of the gateway's account. It counts as
// the account's once tasks of several users were refused in a row. Until then it delays
// the tasks of that user alone, and afterwards the users whose tasks were refused wait
// longer than those whose tasks were not.

const (
	// forgetDelay is how long after its end a delay is forgotten.
	forgetDelay = 2 * time.Minute

	// asidePace is the pace at which tasks of a user come back that were put aside, so
	// that they do not use up what looks a backend has in a second. It slows down with
	// the refusals in a row, down to maxAside times.
	asidePace = 100 * time.Millisecond
	maxAside  = 10
)

// over reports whether the delay is forgotten.
func (u *delay) over(now time.Time) bool { return now.After(u.until.Add(forgetDelay)) }

// forbid counts a 403. It reports whether the refusal concerns the task or its user only. d.mu is
// held.
func (d *driver) forbid(user string) (own bool) {
	now := time.Now()
	u := d.delays[user]
	if u == nil || u.over(now) {
		for name, other := range d.delays {
			if other.over(now) {
				delete(d.delays, name)
			}
		}
		u = new(delay)
		d.delays[user] = u
	}
	d.suspected = d.suspected || d.forbade != "" && d.forbade != user
	d.forbade = user
	if d.suspected && !now.Before(d.paused) { // else several were sent at once
		d.busy++
		d.paused = now.Add(transition.Interval(0, 0))
	}
	if !now.Before(u.until) {
		u.until = now.Add(transition.Interval(0, max(u.refusals, d.busy-1)))
		u.refusals++
	}
	return !d.suspected
}

// delayed returns for how long the tasks of a user are delayed, and whether they are. Zero and
// true: the next one may be sent.
func (d *driver) delayed(user string) (wait time.Duration, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u, now := d.delays[user], time.Now()
	if u == nil || u.over(now) {
		return 0, false
	}
	next := u.until
	if u.next.After(next) {
		next = u.next
	}
	return max(0, next.Sub(now)), true
}

// sends notes that a task of a user is sent. If the user is delayed, other tasks of the user wait
// for its result.
func (d *driver) sends(user string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u := d.delays[user]; u != nil {
		u.next, u.put = time.Now().Add(transition.Interval(0, 0)), 0
	}
}

// aside counts a task of a user as put aside, and returns for how long.
func (d *driver) aside(user string, wait time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u := d.delays[user]; u != nil {
		wait += time.Duration(u.put*min(u.refusals, maxAside)) * asidePace
		u.put++
	}
	return wait
}
