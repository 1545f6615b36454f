package call

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// timedOut is the error of a call after a timeout of the backend.
var timedOut = fault.New(fault.UpstreamTimeout, "the backend of this model did not answer in time")

// errTimeout cancels a call after the backend was silent for too long. It is a net.Error, by which
// Caddy recognises a time-out.
type errTimeout struct{}

func (errTimeout) Error() string   { return "the backend was silent too long" }
func (errTimeout) Timeout() bool   { return true }
func (errTimeout) Temporary() bool { return true }

// watch is the timer of a call. If the backend is silent for too long, it cancels the call. It
// sends pings to the caller of a silent stream. It uses one timer and no goroutine.
type watch struct {
	timer   *time.Timer
	due     time.Time // when the timer fires
	firstBy time.Time // the deadline of the response header
	endBy   time.Time // the deadline of a detached call; zero: none
	idle    time.Duration
	ping    time.Duration // zero: none
	gap     time.Duration // how long the rest of a cancelled answer may pause; zero: it is not read
	recheck time.Duration // until the next check, if an answer is being written or an event is incomplete
}

func (w *watch) start(a *answer) {
	limits := a.call.block.app.Limits
	w.idle = time.Duration(limits.Idle)
	w.ping = max(time.Duration(limits.Ping), 0)
	w.recheck = min(time.Second, w.idle)
	now, firstByte := time.Now(), time.Duration(limits.FirstByte)
	w.firstBy = now.Add(firstByte)

	// Most answers are complete before the first timeout. Their headers then need not
	// reset the timer.
	first := min(firstByte, w.idle)
	a.mu.Lock() // check uses the timer
	defer a.mu.Unlock()
	w.due = now.Add(first)
	w.timer = time.AfterFunc(first, func() { w.check(a) })
}

// reset sets the timer.
func (w *watch) reset(now time.Time, after time.Duration) {
	w.due = now.Add(after)
	w.timer.Reset(after)
}

// stop stops the timer. A running check ends when it sees that the answer is closed.
func (w *watch) stop() { w.timer.Stop() }

// dropTimeout is the maximum time for reading a body that is not forwarded. If the body is read
// completely, the connection to the backend can be reused.
const dropTimeout = 5 * time.Second

// headReceived ends the wait for the response header, and starts the timeout for silence.
func (w *watch) headReceived(a *answer) {
	now := time.Now()
	a.lastByte, a.lastSent = now, now
	if a.status != 200 || !a.stream || a.encoded {
		w.ping = 0
	}
	if !a.passed {
		w.idle = min(w.idle, dropTimeout)
	}
	if next := w.next(a, now); now.Add(next).Before(w.due) {
		w.reset(now, next)
	}
}

// endWithin bounds the remaining time of a detached call. It keeps an earlier bound.
func (w *watch) endWithin(bound time.Duration) {
	now := time.Now()
	if end := now.Add(bound); w.endBy.IsZero() || end.Before(w.endBy) {
		w.endBy = end
		if end.Before(w.due) {
			w.reset(now, bound)
		}
	}
}

// catchUp bounds the time for reading what the backend has sent before the caller disconnected. It has sent
// that while writes to the caller blocked.
func (w *watch) catchUp(a *answer) {
	w.gap, a.lastByte = catchUpGap, time.Now()
	w.endBy = a.lastByte.Add(min(a.blocked+time.Second, catchUpTimeout))
	w.reset(a.lastByte, catchUpGap)
}

// next returns the time until something may be due.
func (w *watch) next(a *answer, now time.Time) time.Duration {
	due := w.idle - now.Sub(a.lastByte)
	if !a.head {
		due = w.firstBy.Sub(now)
	}
	if !w.endBy.IsZero() {
		due = min(due, w.endBy.Sub(now))
	}
	if w.gap > 0 {
		due = min(due, w.gap-now.Sub(a.lastByte))
	}
	if w.ping > 0 {
		due = min(due, w.ping-now.Sub(a.lastSent))
	}
	return max(due, time.Millisecond)
}

// check runs when the timer fires.
func (w *watch) check(a *answer) {
	if !a.mu.TryLock() {
		// The answer is being written. The watch does not end a call whose caller
		// reads nothing: Caddy bounds every write (write_idle, a minute), and only
		// the writer may set deadlines. The timer is not touched, because the holder
		// of the mutex may be setting it.
		time.AfterFunc(w.recheck, func() { w.check(a) })
		return
	}
	defer a.mu.Unlock()
	now := time.Now()
	switch {
	case a.closed:
		return
	case !a.head && !now.Before(w.firstBy), a.head && now.Sub(a.lastByte) >= w.idle:
		a.call.cancel(errTimeout{})
		return
	case !w.endBy.IsZero() && !now.Before(w.endBy), w.gap > 0 && now.Sub(a.lastByte) >= w.gap:
		a.expire()
		return
	}
	if w.ping > 0 && now.Sub(a.lastSent) >= w.ping && a.intact() {
		if err := a.emit(a.call.route.Dialect.Ping()); err == nil {
			_ = a.control.Flush()
		}
		a.lastSent = now
		a.noteBlocked(time.Since(now))
	}
	next := w.next(a, now)
	if w.ping > 0 && now.Sub(a.lastSent) >= w.ping {
		next = w.recheck // due, but in the middle of an event
	}
	w.reset(now, next)
}
