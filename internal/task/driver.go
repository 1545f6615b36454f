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
	// How many deliveries, processed tasks and copies of one backend run at once. It bounds memory; the
	// others wait in the store.
	maxDeliveries = 64
	maxProcessing = 64
	maxCopies     = 16
)

// driver drives the tasks of one backend.
type driver struct {
	*core
	*record.Worker // calls runOnce
	name           string

	deliveries, processing slots
	copies                 limit.Semaphore

	mu             sync.Mutex
	paused         time.Time // nothing is sent before this time
	refusals       int       // since the last acceptance
	lastRefused    string    // id of the task refused last, since the last acceptance
	severalRefused bool      // more than one task was refused since the last acceptance
	acceptedAt     int64     // time of the last acceptance, Unix milliseconds

	lastForbidden    string            // user of the task refused last with 403, since the last acceptance
	accountSuspected bool              // the backend refused the account, or tasks of several users with 403
	delays           map[string]*delay // by user
}

// delay is how the tasks of one user are delayed at a backend that has refused one of
// them with 403. Its times are by the clock of timers.
type delay struct {
	refusals int       // in a row
	until    time.Time // after a refusal, no task of the user is sent before this time
	next     time.Time // after a sent task, no other is sent before this time
	aside    int       // tasks deferred since the last sent task
}

func newDriver(c *core, name string) *driver {
	return &driver{
		core: c, name: name, Worker: c.store.Worker("drive the tasks of a backend", zap.String("backend", name)),
		deliveries: slots{Semaphore: limit.NewSemaphore(maxDeliveries)}, processing: slots{Semaphore: limit.NewSemaphore(maxProcessing)}, copies: limit.NewSemaphore(maxCopies),
		delays: make(map[string]*delay),
	}
}

// nudgeBy makes the driver run not later than a time in Unix milliseconds. The clock of the store may
// be set; the clock of timers is monotonic.
func (d *driver) nudgeBy(at int64) {
	d.NudgeIn(time.Duration(at-d.now()) * time.Millisecond)
}

// slots bound the number of goroutines of one kind of a driver. Only the driver acquires them.
type slots struct {
	limit.Semaphore
	wanted atomic.Bool // fewer slots were free than requested
}

// available returns how many of the requested slots are free, with total slots in all. If fewer are
// free, the next release reports that a slot is wanted.
func (s *slots) available(requested, total int) int {
	s.wanted.Store(true) // before Held: a concurrent release must see it
	free := max(0, min(requested, total-s.Held()))
	if free == requested {
		s.wanted.Store(false)
	}
	return free
}

// release releases a slot, and reports whether one is wanted.
func (s *slots) release() (wanted bool) {
	s.Release()
	return s.wanted.Swap(false)
}

// begin runs fn in a goroutine with a slot.
func (d *driver) begin(s *slots, fn func()) {
	s.TryAcquire() // cannot fail: available has returned a free slot
	d.store.Steps.Go(func() {
		defer func() {
			if s.release() {
				d.Nudge()
			}
		}()
		fn()
	})
}

// applyClaimed carries out a transition of a claimed task. After an error the task is due again when
// its lease has expired.
func (d *driver) applyClaimed(tr *transition.Row, c transition.Change) (after *record.Record, done bool) {
	after, done, err := d.apply(d.store.Life, tr, c)
	if err != nil {
		d.store.Log.Warn("cannot write a change of a task: it is repeated when the lease has expired", zap.String("task_id", c.Known.ID), zap.Error(err))
	}
	return after, done
}

// fail ends a claimed task without a charge.
func (d *driver) fail(rec *record.Record, why *record.Error) {
	d.applyClaimed(transition.Fail, transition.Change{Known: rec, Failure: why})
}

// release ends the claim of a task, which is due again after a pause.
func (d *driver) release(rec *record.Record, pause time.Duration) {
	d.applyClaimed(transition.Release, transition.Change{Known: rec, Due: d.now() + pause.Milliseconds()})
}
