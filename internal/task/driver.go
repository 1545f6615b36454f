package task

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/storage"
)

const (
	// window is how many due tasks are read and claimed at once.
	window = 64

	// Of one backend, so many hand-overs, looks and copies run at once. It
	// bounds memory; what is above it waits in the store.
	maxDeliveries = 64
	maxLooks      = 64
	maxCopies     = 16

	// maxTaken is how many tasks get a slot in one transaction.
	maxTaken = 16

	// idle is how long a driver sleeps at most: it looks for what another node
	// has left.
	idle = time.Minute

	// pollTimeout bounds one question to a backend.
	pollTimeout = 30 * time.Second

	// wakePause is how soon after a poll a wake-up can bring the next.
	wakePause = time.Second
)

// driver drives the tasks of one backend.
type driver struct {
	engine *Engine
	name   string

	wake chan struct{}             // a token has it look what there is to do
	next atomic.Pointer[time.Time] // when it looks by itself, by the clock of timers; nil while it looks
	stop chan struct{}
	once sync.Once

	deliveries semaphore
	looks      semaphore
	copying    chan struct{} // a token for each copy under way
	polls      rateLimiter

	mu       sync.Mutex
	paused   time.Time // until when the backend is too busy for more
	busy     int       // refusals since it has accepted a task
	refused  string    // the task that it has refused last, since then
	several  bool      // it has refused more than that one
	accepted int64     // when it has accepted a task last, Unix milliseconds

	forbade   string            // the user whose task it has refused with 403 last, since it has accepted one
	suspected bool              // it has so refused tasks of several users, or has refused the account
	delays    map[string]*delay // by user
}

func newDriver(e *Engine, name string) *driver {
	return &driver{
		engine: e, name: name,
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		copying: make(chan struct{}, maxCopies), delays: make(map[string]*delay),
	}
}

// nudge has the driver look what there is to do.
func (d *driver) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// nudgeBy has the driver look at a time, unless it does so before by itself.
func (d *driver) nudgeBy(due int64) {
	in := time.Duration(due-d.engine.now()) * time.Millisecond // the clock of the store may be set, that of timers is not
	if next := d.next.Load(); next == nil || in < time.Until(*next) {
		d.nudge()
	}
}

// halt has the driver begin nothing more.
func (d *driver) halt() { d.once.Do(func() { close(d.stop) }) }

// run drives until halt.
func (d *driver) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-d.wake:
		case <-timer.C:
		}
		d.next.Store(nil)
		b, found := d.engine.backend(d.name)
		if !found {
			return
		}
		wait, err := d.turn(b)
		if stopped := d.engine.store.Err(); stopped != nil { // until a restart nothing can be done
			d.engine.log.Error("the tasks of a backend are driven no further", zap.String("backend", d.name), zap.Error(stopped))
			return
		}
		if err != nil && d.engine.life.Err() == nil {
			d.engine.log.Error("driving the tasks of a backend", zap.String("backend", d.name), zap.Error(err))
			wait = time.Second
		}
		next := time.Now().Add(wait)
		d.next.Store(&next)
		timer.Reset(wait)
	}
}

// turn begins what there is to do now, and returns when to look again.
func (d *driver) turn(b Backend) (time.Duration, error) {
	wait, unfed := d.feed(b)
	next, err := d.look(b) // what waits and cannot be begun keeps nothing that runs
	return max(min(wait, next), time.Millisecond), errors.Join(unfed, err)
}

// feed hands over the tasks that a slot is free for.
func (d *driver) feed(b Backend) (wait time.Duration, err error) {
	if until := d.pausedFor(); until > 0 {
		return until, nil
	}
	most := d.deliveries.available(maxTaken, maxDeliveries)
	if d.wasBusy() {
		most = d.deliveries.available(1, 1) // one tries whether it still is
	}
	if most == 0 {
		return idle, nil // the next that ends nudges
	}
	taken, aside, err := d.take(b, most)
	for _, rec := range taken {
		d.sends(rec.User)
		d.begin(&d.deliveries, func() { d.handOver(rec) })
	}
	if len(taken) == most || aside > 0 { // there may be more behind them
		return 0, err
	}
	return idle, err
}

// begin runs something that takes a seat meanwhile.
func (d *driver) begin(s *semaphore, fn func()) {
	s.acquire()
	d.engine.steps.Go(func() {
		defer func() {
			if s.release() {
				d.nudge()
			}
		}()
		fn()
	})
}

// handOver sends a task that has waited.
func (d *driver) handOver(rec *record) {
	job, err := d.engine.job(d.engine.life, rec)
	if err != nil {
		d.engine.log.Error("a task that is to be sent cannot be read", zap.String("task_id", rec.ID), zap.Error(err))
		d.engine.deferTask(rec, DefaultBusyTimeout, backends.UpstreamError, 0, true)
		return
	}
	d.engine.handOver(rec, job, nil)
}

// take gives slots to at most so many of those that wait longest, as far as
// there are any, and returns them. It puts tasks of delayed users aside, and returns
// how many.
func (d *driver) take(b Backend, most int) (taken []*record, aside int, err error) {
	e := d.engine
	in := queue.Under(b.Name)
	var load load
	var some bool
	err = e.view(e.life, func(r storage.Reader) error {
		keys, err := in.Keys(r, 1)
		if err != nil {
			return err
		}
		some = len(keys) > 0
		load, err = readLoad(r, b.Name)
		return err
	})
	if err != nil || !some || !load.room(b.MaxRunning) {
		return nil, 0, err
	}
	var unread []error
	given := make(map[string]int64) // by runs that may have been committed without anybody knowing
	err = e.update(e.life, func(t storage.Txn) error {
		taken, unread, aside = nil, nil, 0
		tried := make(map[string]bool) // delayed users of whom one task is taken
		for id, fence := range given {
			rec, err := readTask(t, id)
			if err != nil {
				return err
			}
			if rec != nil && rec.Delivery == Sending && rec.Fence == fence && rec.Owner == e.id {
				taken = append(taken, rec)
			}
		}
		keys, err := in.Keys(t, most-len(taken)+maxUnreadable)
		if err != nil {
			return err
		}
		for _, key := range keys {
			l, err := readLoad(t, b.Name)
			if err != nil || !l.room(b.MaxRunning) || len(taken) == most {
				return err
			}
			now := e.now()
			sent := false
			rec, err := change(t, lastID(key), func(r *record) bool {
				if !r.waiting() || now >= r.Deadline {
					return false
				}
				wait, delayed := d.delayed(r.User)
				if sent = wait == 0 && !tried[r.User]; sent {
					r.send(e.id, now)
					tried[r.User] = delayed
					return true
				}
				r.Resume = now + d.aside(r.User, max(wait, interval(0, 0))).Milliseconds()
				r.release(r.lookWaiting(b.BusyTimeout))
				aside++
				return true
			})
			if errors.Is(err, storage.ErrUnreadable) { // of it nothing has been changed yet
				unread = append(unread, err)
				continue
			}
			if err != nil {
				return err
			}
			if sent {
				given[rec.ID] = rec.Fence
				taken = append(taken, rec)
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err // what may have been taken is in doubt when its lease ends
	}
	return taken, aside, errors.Join(unread...)
}

// maxUnreadable is how many tasks that cannot be read are passed over for those
// behind them.
const maxUnreadable = 16

// look begins looks at the tasks that are due, as far as there is room for them.
func (d *driver) look(b Backend) (wait time.Duration, err error) {
	e := d.engine
	most, refill := d.polls.available(b.PollsPerSecond, time.Now())
	if most == 0 {
		return refill, nil
	}
	if most = d.looks.available(min(most, window), maxLooks); most == 0 {
		return idle, nil // the next that ends nudges
	}
	next, err := e.nextDue(b.Name)
	if err != nil || next > 0 {
		return next, err
	}
	claimed, err := e.claimDue(b.Name, most)
	d.polls.take(len(claimed))
	for _, rec := range claimed {
		d.begin(&d.looks, func() { d.step(b, rec) })
	}
	return 0, err
}

// nextDue is how long it takes until a task of a backend is due.
func (e *Engine) nextDue(backend string) (wait time.Duration, err error) {
	wait = idle
	err = e.view(e.life, func(r storage.Reader) error {
		keys, err := due.Under(backend).Keys(r, 1)
		if len(keys) > 0 {
			wait = min(idle, max(0, time.UnixMilli(timeBefore(keys[0])).Sub(e.store.Now())))
		}
		return err
	})
	return wait, err
}

// claimDue claims tasks that are due. One whose lease has not ended is being sent:
// it is nobody else's until then, and due then.
func (e *Engine) claimDue(backend string, most int) (claimed []*record, err error) {
	in := due.Under(backend)
	var unread []error
	err = e.update(e.life, func(t storage.Txn) error {
		claimed, unread = nil, nil
		now := e.now()
		keys, err := in.Before(backend, now+1).Keys(t, most+maxUnreadable)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if len(claimed) == most {
				break
			}
			held := false
			rec, err := change(t, lastID(key), func(r *record) bool {
				if held = now < r.Lease; held {
					r.Due = r.Lease
				} else {
					r.claim(e.id, now)
				}
				return true
			})
			if errors.Is(err, storage.ErrUnreadable) { // of it nothing has been changed yet
				unread = append(unread, err)
				continue
			}
			if err != nil {
				return err
			}
			if rec == nil { // nothing leads to what does not exist
				if err := t.Delete(key); err != nil {
					return err
				}
				continue
			}
			if !held {
				claimed = append(claimed, rec)
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
func (d *driver) step(b Backend, rec *record) {
	switch {
	case rec.over() && rec.Ref != nil:
		d.watch(b, rec)
	case rec.Delivery == None:
		d.resume(b, rec)
	case rec.Delivery == Sending: // the lease has run out: whoever sent it is gone
		d.engine.doubt(b, rec)
	case rec.Delivery == Unknown:
		d.reconcile(b, rec)
	case rec.Ref == nil: // nothing here writes such a record; Verify tells of it
		d.engine.log.Error("a task has no reference to be asked for by", zap.String("task_id", rec.ID))
		d.release(rec, func(*record) int64 { return d.engine.now() + idle.Milliseconds() })
	default:
		d.poll(b, rec)
	}
}

// resume looks at a task that waits. It fails if its time is over, or if its backend
// has refused it for too long and takes others; a deferred task whose pause is over goes back into the
// queue. One that was looked at earlier on request goes on waiting.
func (d *driver) resume(b Backend, rec *record) {
	now := d.engine.now()
	long := rec.deferred() && rec.RefusedSince != 0 && now >= rec.RefusedSince+b.BusyTimeout.Milliseconds()
	switch {
	case now >= rec.Deadline:
		d.finish(rec, outcome{state: Failed, failure: timeout, only: rec.fenced})
	case long && !d.patient():
		d.finish(rec, outcome{state: Failed, failure: refusedFor(rec.Refusal, b.BusyTimeout), only: rec.fenced})
	default:
		d.requeue(rec, now, b.BusyTimeout)
	}
}

// requeue gives the claim of a task that waits back. If its pause is over it goes to
// the end of the queue: behind others that may be taken.
func (d *driver) requeue(rec *record, now int64, timeout time.Duration) {
	e := d.engine
	err := e.update(e.life, func(t storage.Txn) error {
		l, err := readLoad(t, rec.Backend)
		if err != nil {
			return err
		}
		_, err = changeKnown(t, rec, func(r *record) bool {
			if !rec.fenced(r) || !r.waiting() {
				return false
			}
			if r.RefusedSince != 0 && d.patient() {
				r.RefusedSince = now
			}
			if r.deferred() && now >= r.Resume {
				r.Resume, r.Place = 0, l.Last+1
			}
			r.release(r.lookWaiting(timeout))
			return true
		})
		return err
	})
	if err != nil {
		e.log.Warn("a look at a task is lost, it is looked at again", zap.String("task_id", rec.ID), zap.Error(err))
	}
	d.nudge()
}

// lookWaiting is when a task that waits is looked at, Unix milliseconds.
func (r *record) lookWaiting(timeout time.Duration) int64 {
	due := r.Deadline
	if r.Resume != 0 {
		due = min(due, r.Resume)
		if r.RefusedSince != 0 {
			due = min(due, r.RefusedSince+timeout.Milliseconds())
		}
	}
	return due
}

// refusedFor is why a task fails that its backend has refused for too long.
func refusedFor(reason backends.Reason, timeout time.Duration) *Error {
	if reason == backends.UpstreamBusy {
		return failure(reason, fmt.Sprintf("the generation service was too busy to take the task for %v", timeout))
	}
	return failure(backends.UpstreamError, fmt.Sprintf("the generation service has refused the task for %v", timeout))
}

// jitter spreads what would else come together, by a fifth.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1) //nolint:gosec // nobody gains by knowing it
}

// release gives a claim back, with due as when to look again.
func (d *driver) release(rec *record, due func(r *record) int64) {
	var after *record
	err := d.engine.update(d.engine.life, func(t storage.Txn) (err error) {
		after, err = changeKnown(t, rec, func(r *record) bool {
			if !rec.fenced(r) {
				return false
			}
			r.release(due(r))
			return true
		})
		return err
	})
	if err != nil {
		d.engine.log.Warn("a look at a task is lost, it is looked at again", zap.String("task_id", rec.ID), zap.Error(err))
		return
	}
	if after != nil {
		d.engine.changed(rec, after)
	}
}

// fenced tells whether nobody has claimed the task since.
func (r *record) fenced(now *record) bool { return now.Fence == r.Fence && now.Owner == r.Owner }

// finish ends a task that was claimed. What fails here is found again when the
// lease has run out.
func (d *driver) finish(rec *record, o outcome) {
	if _, err := d.engine.finish(d.engine.life, rec, o); err != nil {
		d.engine.log.Warn("a task cannot be ended now, it is looked at again", zap.String("task_id", rec.ID), zap.Error(err))
	}
}

// keepLease renews the claim of something long until it is over, and ends its
// context when somebody else has claimed the task.
func (d *driver) keepLease(rec *record) (ctx context.Context, over func()) {
	ctx, cancel := context.WithCancel(d.engine.life)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(leaseFor / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			held := true
			err := d.engine.update(ctx, func(t storage.Txn) error {
				_, err := changeKnown(t, rec, func(r *record) bool {
					if held = rec.fenced(r); held {
						r.Lease = d.engine.now() + leaseFor.Milliseconds()
						r.Due = r.Lease
					}
					return held
				})
				return err
			})
			if err == nil && !held {
				cancel()
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// semaphore bound what runs at once. The zero value is ready to use.
type semaphore struct {
	mu     sync.Mutex
	taken  int
	wanted bool // somebody has asked for more than were left
}

// room is how many of the semaphore asked for are left, where there are most in all.
// If they are fewer, the next that is given back is wanted.
func (s *semaphore) available(asked, most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := max(0, min(asked, most-s.taken))
	s.wanted = left < asked
	return left
}

func (s *semaphore) acquire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken++
}

// release gives a slot back, and tells whether it is wanted.
func (s *semaphore) release() (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	wanted, s.wanted = s.wanted, false
	return wanted
}
