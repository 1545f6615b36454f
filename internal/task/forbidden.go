package task

import "time"

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
	// the refusals in a row, down to mostAside times.
	asidePace = 100 * time.Millisecond
	mostAside = 10
)

// over tells whether the delay is forgotten.
func (u *delay) over(now time.Time) bool { return now.After(u.until.Add(forgetDelay)) }

// forbid counts a 403. It tells whether the refusal speaks of the task or its user
// alone. d.mu is held.
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

// delayed tells how long the tasks of a user are delayed: not at all, if the backend
// has refused none with 403 since it took one. Zero and true: the next may be sent.
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

// sends notes that a task of a user is sent whose tasks are delayed: others of the
// same user wait for what comes of it.
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
		wait += time.Duration(u.put*min(u.refusals, mostAside)) * asidePace
		u.put++
	}
	return wait
}
