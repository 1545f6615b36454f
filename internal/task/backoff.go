package task

import (
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
)

// refusedNow notes that a backend has refused a task that it may take later. The task leaves the
// queue for a pause and returns to its end, so that it blocks no other.
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
			e.logBackendError(zap.WarnLevel, "a generation service refuses a task: it is tried again later", rec, refusal)
		} else {
			e.logBackendError(zap.ErrorLevel, "a generation service does not accept the gateway's account: its tasks wait", rec, refusal)
		}
	}
	e.deferTask(rec, b.BusyTimeout, refusal.Reason, asked, own)
}

// refuse counts a refusal, and pauses the backend if it would refuse other tasks too. It reports
// whether the refusal concerns this task or its user only: the backend has taken others since it
// first refused the task, or it has refused no other in a row; with 403, none of another user. A
// refusal of the account (401, 402) always concerns all tasks.
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
		failures = min(failures, maxFirstFailures) // there may be others behind it that are taken
	}
	wait := interval(0, failures)
	if refusal.RetryAfter > 0 { // never an instant: it would be asked without end
		wait = max(min(refusal.RetryAfter, maxPause), interval(0, 0))
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
// [errorIntervals].
const maxFirstFailures = 3

// deferTask puts a task aside that its backend refused for now. asked is the least pause. Unless
// the refusal is the task's own, the time after which the task fails begins again.
func (e *Engine) deferTask(rec *record, timeout time.Duration, reason backends.Reason, asked time.Duration, own bool) {
	e.note(transitionDefer, change{known: rec, busyTimeout: timeout, reason: reason, pause: asked, patient: !own})
	e.nudge(rec.Backend)
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

// paused reports whether a backend has asked for a pause.
func (e *Engine) paused(backend string) bool {
	d := e.driverOf(backend)
	return d != nil && d.pausedFor() > 0
}

// open reports whether a task of a user may be sent at once, without waiting in the queue.
func (e *Engine) open(backend, user string) bool {
	d := e.driverOf(backend)
	if d == nil {
		return true
	}
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

// delay is how the tasks of one user are delayed at a backend that has refused one of
// them with 403. Its times are those of timers.
type delay struct {
	refusals int       // in a row
	until    time.Time // no task of the user is sent before, after a refusal
	next     time.Time // nor before this, after one was sent
	put      int       // tasks put aside since
}

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
		d.paused = now.Add(interval(0, 0))
	}
	if !now.Before(u.until) {
		u.until = now.Add(interval(0, max(u.refusals, d.busy-1)))
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
		u.next, u.put = time.Now().Add(interval(0, 0)), 0
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

// rateLimiter bounds how many polls begin in a second, with a burst of one second. The zero value
// is full.
type rateLimiter struct {
	mu   sync.Mutex
	used float64 // of those of a second
	at   time.Time
}

// available returns how many may begin now, and if none, when one may.
func (b *rateLimiter) available(perSecond int, now time.Time) (n int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if elapsed := now.Sub(b.at); elapsed > 0 {
		b.used = max(0, b.used-elapsed.Seconds()*float64(perSecond))
	}
	b.at = now
	if n = int(float64(perSecond) - b.used); n > 0 {
		return n, 0
	}
	return 0, time.Duration((b.used-float64(perSecond)+1)/float64(perSecond)*float64(time.Second)) + time.Millisecond
}

// take counts polls that have begun.
func (b *rateLimiter) take(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += float64(n)
}
