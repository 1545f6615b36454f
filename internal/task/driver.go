package task

import (
	"context"
	"errors"
	"fmt"
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

	// How many deliveries, looks and copies of one backend run at once. It bounds memory; the
	// others wait in the store.
	maxDeliveries = 64
	maxLooks      = 64
	maxCopies     = 16

	// maxTaken is how many tasks get a slot in one transaction.
	maxTaken = 16
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

// nudge makes the driver look for work.
func (d *driver) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// nudgeBy makes the driver look for work when due, unless it will do so earlier.
func (d *driver) nudgeBy(due int64) {
	in := time.Duration(due-d.engine.now()) * time.Millisecond // the clock of the store may be set, that of timers is not
	if next := d.next.Load(); next == nil || in < time.Until(*next) {
		d.nudge()
	}
}

// halt makes the driver begin nothing more.
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

// turn begins the work there is now, and returns when to look again.
func (d *driver) turn(b Backend) (time.Duration, error) {
	wait, unfed := d.feed(b)
	next, err := d.look(b) // what waits and cannot be begun keeps nothing that runs
	return max(min(wait, next), time.Millisecond), errors.Join(unfed, err)
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
		return idle, nil // the next that ends nudges
	}
	taken, aside, err := d.take(b, most)
	for _, rec := range taken {
		d.sends(rec.User)
		d.begin(&d.deliveries, func() { d.deliver(rec) })
	}
	if len(taken) == most || aside > 0 { // there may be more behind them
		return 0, err
	}
	return idle, err
}

// begin runs fn with a slot of a semaphore.
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

// deliver sends a task that has waited.
func (d *driver) deliver(rec *record) {
	job, err := d.engine.job(d.engine.life, rec)
	if err != nil {
		d.engine.log.Error("a task that is to be sent cannot be read", zap.String("task_id", rec.ID), zap.Error(err))
		d.engine.deferTask(rec, DefaultBusyTimeout, backends.UpstreamError, 0, true)
		return
	}
	d.engine.deliver(rec, job, nil)
}

// take gives slots to the tasks that wait longest, at most so many, and returns them. It puts tasks
// of delayed users aside, and returns how many.
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
	given := make(map[string]int64) // by earlier runs, which may have been committed with an unknown outcome
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
			rec, err := readable(t, key, &unread)
			if err != nil {
				return err
			}
			if rec == nil {
				continue
			}
			tr, c := transitionSend, change{known: rec, before: rec, counts: &l, busyTimeout: b.BusyTimeout}
			wait, delayed := d.delayed(rec.User)
			if wait > 0 || tried[rec.User] {
				tr, c.pause = transitionPutAside, d.aside(rec.User, max(wait, interval(0, 0)))
			}
			done, err := e.transitions.apply(e.life, t, tr, &c)
			switch {
			case err != nil:
				return err
			case !done:
			case tr == transitionPutAside:
				aside++
			default:
				tried[rec.User] = delayed
				given[rec.ID] = c.after.Fence
				taken = append(taken, c.after)
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

// claimDue claims tasks that are due. A task that is being sent is due again when its lease ends.
func (e *Engine) claimDue(backend string, most int) (claimed []*record, err error) {
	in := due.Under(backend)
	var unread []error
	err = e.update(e.life, func(t storage.Txn) error {
		claimed, unread = nil, nil
		keys, err := in.Before(backend, e.now()+1).Keys(t, most+maxUnreadable)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if len(claimed) == most {
				break
			}
			rec, err := readTask(t, lastID(key))
			if errors.Is(err, storage.ErrUnreadable) {
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
			c := change{known: rec, before: rec}
			mine, err := e.transitions.apply(e.life, t, transitionClaim, &c)
			switch {
			case err != nil:
				return err
			case mine:
				claimed = append(claimed, c.after)
				continue
			}
			if _, err := e.transitions.apply(e.life, t, transitionPostpone, &c); err != nil {
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
func (d *driver) step(b Backend, rec *record) {
	switch {
	case rec.over() && rec.Ref != nil:
		d.watch(b, rec)
	case rec.Delivery == None:
		d.resume(b, rec)
	case rec.Delivery == Sending: // the lease has run out: the engine that sent it is gone
		d.engine.lostTrack(b, rec)
	case rec.Delivery == Unknown:
		d.reconcile(b, rec)
	case rec.Ref == nil: // no code writes such a record; Verify reports it
		d.engine.log.Error("a task has no reference to be asked for by", zap.String("task_id", rec.ID))
		d.release(rec, idle)
	default:
		d.poll(b, rec)
	}
}

// resume looks at a task that waits. The task fails if its deadline has passed, or if its backend
// has refused it for too long and takes others. Otherwise it goes on waiting, in the queue if its
// pause is over.
func (d *driver) resume(b Backend, rec *record) {
	now := d.engine.now()
	long := rec.deferred() && rec.RefusedSince != 0 && now >= rec.RefusedSince+b.BusyTimeout.Milliseconds()
	switch {
	case now >= rec.Deadline:
		d.fail(rec, timeout)
	case long && !d.patient():
		d.fail(rec, refusedFor(rec.Refusal, b.BusyTimeout))
	default:
		d.move(transitionRequeue, change{known: rec, busyTimeout: b.BusyTimeout, patient: d.patient()})
		d.nudge()
	}
}

// move carries out a transition of a claimed task. If that fails the task is looked at again when
// its lease has run out.
func (d *driver) move(tr *transition, c change) (after *record, done bool) {
	after, done, err := d.engine.move(d.engine.life, tr, c)
	if err != nil {
		d.engine.log.Warn("a look at a task is lost, it is looked at again", zap.String("task_id", c.known.ID), zap.Error(err))
	}
	return after, done
}

// fail ends a claimed task without a charge.
func (d *driver) fail(rec *record, why *Error) {
	d.move(transitionFail, change{known: rec, failure: why})
}

// release gives the claim of a task back, to be looked at again after a pause.
func (d *driver) release(rec *record, pause time.Duration) {
	d.move(transitionRelease, change{known: rec, due: d.engine.now() + pause.Milliseconds()})
}

// refusedFor is why a task fails that its backend has refused for too long.
func refusedFor(reason backends.Reason, timeout time.Duration) *Error {
	if reason == backends.UpstreamBusy {
		return failure(reason, fmt.Sprintf("the generation service was too busy to take the task for %v", timeout))
	}
	return failure(backends.UpstreamError, fmt.Sprintf("the generation service has refused the task for %v", timeout))
}

// keepLease renews the claim of a long copy until over is called. It ends the context if another
// engine has claimed the task.
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
			_, held, err := d.engine.move(ctx, transitionRenew, change{known: rec})
			if err == nil && !held {
				cancel()
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// semaphore bounds what runs at once. The zero value is ready to use.
type semaphore struct {
	mu     sync.Mutex
	taken  int
	wanted bool // more was asked for than was available
}

// available returns how many of the asked slots are free, of most in all. If fewer are free, the
// next release reports that a slot is wanted.
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

// release gives a slot back, and reports whether one is wanted.
func (s *semaphore) release() (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	wanted, s.wanted = s.wanted, false
	return wanted
}
