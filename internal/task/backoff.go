package task

import (
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

// handleRefusal defers a task that the backend refused but may accept later. After a pause the task
// returns to the end of the queue, so that it blocks no other task.
func (d *driver) handleRefusal(b Backend, rec *record.Record, refusal *backends.Error) {
	onlyTask, pause := d.countRefusal(rec, refusal), refusal.RetryAfter
	if wait, delayed := d.userDelay(rec.User); delayed {
		pause = max(pause, wait+transition.Interval(0, 0)) // another task of the user is tried first
	}
	if refusal.Kind == backends.Refused {
		if onlyTask {
			d.logBackendError(zap.WarnLevel, "a generation service refused a task: the task is sent again later", rec, refusal)
		} else {
			d.logBackendError(zap.ErrorLevel, "a generation service does not accept the gateway's account: its tasks wait", rec, refusal)
		}
	}
	d.deferTask(rec, b.BusyTimeout, refusal.Reason, pause, onlyTask)
}

// countRefusal counts a refusal, and pauses the backend if it would refuse other tasks too. It
// reports whether the refusal concerns only this task or its user. It does if the backend has
// accepted other tasks since it first refused this one. It also does if no other task was refused
// in a row; with 403, no task of another user. A refusal of the account (401, 402) concerns all tasks.
func (d *driver) countRefusal(rec *record.Record, refusal *backends.Error) (onlyTask bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	account := refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusPaymentRequired
	acceptsOthers := !account && rec.RefusedSince != 0 && d.acceptedAt >= rec.RefusedSince
	if !account && refusal.Kind == backends.Refused {
		return acceptsOthers || d.countForbidden(rec.User)
	}
	d.accountSuspected = d.accountSuspected || account
	failures := d.refusals
	d.refusals++
	if acceptsOthers {
		return true
	}
	d.severalRefused = d.severalRefused || d.lastRefused != "" && d.lastRefused != rec.ID
	d.lastRefused = rec.ID
	if time.Now().Before(d.paused) { // several tasks were sent at once
		return !d.refusesAll()
	}
	if rec.RefusedSince == 0 {
		failures = min(failures, maxFirstFailures) // the backend may accept the next task in the queue
	}
	wait := transition.Interval(0, failures)
	if refusal.RetryAfter > 0 { // the minimum prevents a busy loop
		wait = max(min(refusal.RetryAfter, transition.MaxPause), transition.Interval(0, 0))
	}
	d.paused = time.Now().Add(wait)
	return !d.refusesAll()
}

// refusesAll reports whether the refusals since the last acceptance concern the backend or the
// account. d.mu is held.
func (d *driver) refusesAll() bool { return d.severalRefused || d.accountSuspected }

// postponesFailure reports whether a task that was refused for too long keeps waiting.
func (d *driver) postponesFailure() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusesAll()
}

// maxFirstFailures bounds the pause of a backend after the first refusal of a task, as an index of
// [ErrorIntervals].
const maxFirstFailures = 3

// deferTask removes a refused task from the queue for at least pause. If onlyTask is false, the refusal
// also concerns other tasks: the time after which the task fails starts again.
func (d *driver) deferTask(rec *record.Record, timeout time.Duration, reason backends.Reason, pause time.Duration, onlyTask bool) {
	d.applyDurably(transition.Defer, transition.Change{Known: rec, BusyTimeout: timeout, Reason: reason, Pause: pause, PostponeFailure: !onlyTask})
	d.nudgeDriver(d.name)
}

// resetRefusals clears the counts of refusals after the backend has accepted a task.
func (d *driver) resetRefusals(rec *record.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acceptedAt = d.now()
	delete(d.delays, rec.User)
	d.lastForbidden, d.accountSuspected = "", false
	if d.refusals != 0 {
		d.refusals, d.lastRefused, d.severalRefused = 0, "", false
		d.Nudge() // other tasks have waited for this
	}
}

// sendsAtOnce reports whether a task of a user may be sent without waiting in the queue.
func (d *driver) sendsAtOnce(user string) bool {
	_, delayed := d.userDelay(user)
	return !delayed && !d.isBusy()
}

// isBusy reports whether the backend has refused a task and accepted none since.
func (d *driver) isBusy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusals > 0
}

func (d *driver) pausedFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Until(d.paused)
}

// A 403 may concern one job, one model or the gateway's account. It counts as a refusal of
// the account if tasks of several users were refused in a row. Until then it delays only
// the tasks of that user. Afterwards, users with refused tasks wait longer than others.

const (
	// forgetDelay is how long a delay is kept after its end.
	forgetDelay = 2 * time.Minute

	// asideInterval is the time between the resumptions of two deferred tasks of a user. It
	// is multiplied by the number of refusals in a row, up to maxAside. So these tasks do not
	// use up the polls per second of the backend.
	asideInterval = 100 * time.Millisecond
	maxAside      = 10
)

// over reports whether the delay no longer counts.
func (u *delay) over(now time.Time) bool { return now.After(u.until.Add(forgetDelay)) }

// countForbidden counts a 403. It reports whether the refusal concerns only the task or its user. d.mu is
// held.
func (d *driver) countForbidden(user string) (onlyTask bool) {
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
	d.accountSuspected = d.accountSuspected || d.lastForbidden != "" && d.lastForbidden != user
	d.lastForbidden = user
	if d.accountSuspected && !now.Before(d.paused) { // otherwise several tasks were sent at once
		d.refusals++
		d.paused = now.Add(transition.Interval(0, 0))
	}
	if !now.Before(u.until) {
		u.until = now.Add(transition.Interval(0, max(u.refusals, d.refusals-1)))
		u.refusals++
	}
	return !d.accountSuspected
}

// userDelay returns how long the tasks of a user are delayed, and whether they are. Zero and true:
// the next task may be sent.
func (d *driver) userDelay(user string) (wait time.Duration, is bool) {
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

// noteSent records that a task of a user is sent. If the user is delayed, other tasks of the user
// wait for its result.
func (d *driver) noteSent(user string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u := d.delays[user]; u != nil {
		u.next, u.aside = time.Now().Add(transition.Interval(0, 0)), 0
	}
}

// asidePause returns how long to defer a task of a user. more is the number of the user's tasks that the
// same transaction has deferred.
func (d *driver) asidePause(user string, more int, wait time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u := d.delays[user]; u != nil {
		wait += time.Duration((u.aside+more)*min(u.refusals, maxAside)) * asideInterval
	}
	return wait
}

// noteAside counts deferred tasks by user.
func (d *driver) noteAside(deferred map[string]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for user, n := range deferred {
		if u := d.delays[user]; u != nil {
			u.aside += n
		}
	}
}
