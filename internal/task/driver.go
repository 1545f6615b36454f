package task

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

const (
	// How many deliveries, looks and copies of one backend run at once. It bounds memory; the
	// others wait in the store.
	maxDeliveries = 64
	maxLooks      = 64
	maxCopies     = 16
)

// driver drives the tasks of one backend.
type driver struct {
	*core
	*record.Worker // it looks for work
	name           string

	deliveries, looks slots
	copies            limit.Semaphore

	mu         sync.Mutex
	paused     time.Time // until when the backend is too busy for more
	busy       int       // refusals since it has accepted a task
	refused    string    // the task that it has refused last, since then
	several    bool      // it has refused more than that one
	acceptedAt int64     // when it has accepted a task last, Unix milliseconds

	forbade   string            // the user whose task it has refused with 403 last, since it has accepted one
	suspected bool              // it has so refused tasks of several users, or has refused the account
	delays    map[string]*delay // by user
}

// delay is how the tasks of one user are delayed at a backend that has refused one of
// them with 403. Its times are those of timers.
type delay struct {
	refusals int       // in a row
	until    time.Time // no task of the user is sent before, after a refusal
	next     time.Time // nor before this, after one was sent
	put      int       // tasks put aside since
}

func newDriver(c *core, name string) *driver {
	return &driver{
		core: c, name: name, Worker: c.store.Worker("driving the tasks of a backend", zap.String("backend", name)),
		deliveries: slots{Semaphore: limit.NewSemaphore(maxDeliveries)}, looks: slots{Semaphore: limit.NewSemaphore(maxLooks)}, copies: limit.NewSemaphore(maxCopies),
		delays: make(map[string]*delay),
	}
}

// nudgeBy makes the driver look for work at a time at the latest, in Unix milliseconds. The clock of
// the store may be set, that of timers is not.
func (d *driver) nudgeBy(at int64) {
	d.NudgeIn(time.Duration(at-d.now()) * time.Millisecond)
}

// slots bound what a driver has under way of one kind. Only the driver takes them.
type slots struct {
	limit.Semaphore
	wanted atomic.Bool // more was asked for than was free
}

// available returns how many of the asked slots are free, of most in all. If fewer are, the next
// release reports that one is wanted.
func (s *slots) available(asked, most int) int {
	s.wanted.Store(true) // before it counts: a slot that is given back meanwhile is told of
	free := max(0, min(asked, most-s.Held()))
	if free == asked {
		s.wanted.Store(false)
	}
	return free
}

// release gives a slot back, and reports whether one is wanted.
func (s *slots) release() (wanted bool) {
	s.Release()
	return s.wanted.Swap(false)
}

// begin runs fn with a slot of a semaphore.
func (d *driver) begin(s *slots, fn func()) {
	s.TryAcquire() // there is one: available has said so
	d.store.Steps.Go(func() {
		defer func() {
			if s.release() {
				d.Nudge()
			}
		}()
		fn()
	})
}

// move carries out a transition of a claimed task. If that fails the task is looked at again when
// its lease has run out.
func (d *driver) move(tr *transition.Row, c transition.Change) (after *record.Record, done bool) {
	after, done, err := d.apply(d.store.Life, tr, c)
	if err != nil {
		d.store.Log.Warn("a look at a task is lost, it is looked at again", zap.String("task_id", c.Known.ID), zap.Error(err))
	}
	return after, done
}

// fail ends a claimed task without a charge.
func (d *driver) fail(rec *record.Record, why *record.Error) {
	d.move(transition.Fail, transition.Change{Known: rec, Failure: why})
}

// release gives the claim of a task back, to be looked at again after a pause.
func (d *driver) release(rec *record.Record, pause time.Duration) {
	d.move(transition.Release, transition.Change{Known: rec, Due: d.now() + pause.Milliseconds()})
}
