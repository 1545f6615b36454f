package ownership

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// This file runs the jobs: background responses whose cost is not known yet. The record of a job is
// durable before the caller learns the id of the response. The reserved money is only in memory, as
// that of every call; a restart reserves it again before it serves the first call. One transaction
// charges a job and removes it from its record, so each job is settled once.

// Running is a job with its reservation.
type Running struct {
	Object      Object // as it was recorded
	reservation *ledger.Reservation
	delivered   atomic.Pointer[Progress] // nil: nothing

	mu       sync.Mutex // held while the job is polled or settled
	attached bool       // the call that submitted it still runs
	settled  bool
	missing  int           // polls in a row that did not find the response
	next     time.Time     // when it is polled again
	pause    time.Duration // until the poll after that
}

// The pauses between two polls of a job grow from the first to the last. A vendor keeps a background
// response for about ten minutes after its end.
const (
	firstPause = time.Second
	lastPause  = 20 * time.Second
)

// A job that cannot be settled is given up: nothing is charged. This happens after GiveUp, or if
// maxMissing polls in a row did not find the response.
const (
	GiveUp     = 24 * time.Hour
	maxMissing = 30
)

// State is what a poll has found.
type State uint8

// The states of a job. If several blocks poll, the greatest counts.
const (
	NotHere     State = iota // no route leads to the backend
	Missing                  // the vendor does not know the response
	Unreachable              // no answer, or one that says nothing about the job
	Pending                  // it is queued or in progress
	Ended                    // it has ended: the Result is set
)

// Result is how a job ended. Call has the values that the settlement changes.
type Result struct {
	Call journal.Call
	Cost money.Amount
	Done func(charged money.Amount) // called when the charge is queued, to log it; nil: nothing is called
}

// Poller asks the vendor for the state of a response. It returns the result if that has ended.
type Poller func(ctx context.Context, r *Running) (State, Result)

// Open returns the objects of a store. It reserves the money of the jobs that are not settled. It must
// be called before the first call is served.
func Open(ctx context.Context, store *storage.Store, l *ledger.Ledger, log *zap.Logger) (*Objects, error) {
	s := &Objects{store: store, ledger: l, log: log, jobs: make(map[string]*Running)}
	var open []Object
	err := store.View(ctx, func(r storage.Reader) error {
		open = nil
		for o, err := range objects.Scan(r, jobIndex.Under()) {
			if errors.Is(err, storage.ErrUnreadable) {
				log.Error("the record of a background response cannot be read; nothing is charged for it", zap.Error(err))
				continue
			}
			if err != nil {
				return err
			}
			open = append(open, *o)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if store.Shared() { // other jobs belong to a node; EndEpoch takes them when it has ended
		return s, s.EndEpoch(ctx, 0)
	}
	for _, o := range open {
		if err := s.resume(ctx, o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// EndEpoch makes this node poll and settle the jobs of a node whose epoch has ended. It may be called
// again.
func (s *Objects) EndEpoch(ctx context.Context, epoch int64) error {
	var left []string
	err := s.store.View(ctx, func(r storage.Reader) error {
		left = nil
		for o, err := range objects.Scan(r, jobIndex.Under()) {
			switch {
			case errors.Is(err, storage.ErrUnreadable):
			case err != nil:
				return err
			case o.Job.Epoch == epoch || o.Job.Epoch == s.store.Epoch() && !s.polls(o.ID): // the latter: an earlier call of EndEpoch failed
				left = append(left, o.ID)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var failed []error // one job must not stop the others
	for _, id := range left {
		var mine *Object
		err := s.store.Update(ctx, func(t storage.Txn) error {
			mine = nil
			before, err := objects.Get(t, hashOf(id))
			if err != nil || before == nil || before.Job == nil || before.Job.Epoch != epoch && before.Job.Epoch != s.store.Epoch() {
				return err // nil: another node polls it
			}
			after, job := *before, *before.Job
			job.Epoch = s.store.Epoch()
			after.Job = &job
			mine = &after
			return objects.Put(t, before, &after)
		})
		if err == nil && mine != nil {
			err = s.resume(ctx, *mine)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// polls reports whether this process polls a job.
func (s *Objects) polls(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id] != nil
}

// resume reserves the money of a job again.
func (s *Objects) resume(ctx context.Context, o Object) error {
	reservation, err := s.reserve(ctx, o.Job.Payer, o.Job.Amount)
	if err == nil {
		s.add(&Running{Object: o, reservation: reservation, pause: firstPause}, false)
	}
	return err
}

// add begins to keep a job. If the job is kept already, one of the two is dropped with its reservation:
// the one before if replace is true.
func (s *Objects) add(r *Running, replace bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.jobs[r.Object.ID]
	switch {
	case before == nil:
	case replace:
		before.reservation.Release()
	default:
		r.reservation.Release()
		return
	}
	s.jobs[r.Object.ID] = r
}

// reserve reserves amount, or as much of it as there is. Another node, or a changed budget, may have
// left less than a job had before a restart.
func (s *Objects) reserve(ctx context.Context, payer ledger.Payer, amount money.Amount) (r *ledger.Reservation, err error) {
	payer.Tolerance = 0 // it concerns new calls
	for {
		r, err = s.ledger.Reserve(ctx, payer, amount)
		short, ok := errors.AsType[*ledger.Shortfall](err)
		if !ok {
			return r, err
		}
		amount = max(0, min(short.Available, amount-1))
	}
}

// Submit records the objects of a background response with its job, as Record does. It takes over the
// reservation. It returns nil if the vendor has returned the id of an earlier response of the user,
// because the request was a repetition: then it releases the reservation.
func (s *Objects) Submit(ctx context.Context, origin Object, reservation *ledger.Reservation, kept time.Duration, ids []Found) (*Running, error) {
	if origin.Job != nil {
		job := *origin.Job
		job.Epoch = s.store.Epoch()
		origin.Job = &job
	}
	_, made, err := s.record(ctx, origin, kept, ids)
	if err != nil {
		return nil, err
	}
	if !made {
		reservation.Release()
		return nil, nil
	}
	i := slices.IndexFunc(ids, func(id Found) bool { return id.Kind == Response })
	origin.ID, origin.Kind = ids[i].ID, Response
	r := &Running{Object: origin, reservation: reservation, attached: true, pause: firstPause}
	s.add(r, true)
	return r, nil
}

// Deliver records how far the caller has read the text of the response.
func (r *Running) Deliver(p Progress) {
	for before := r.delivered.Load(); before == nil || p.Bytes > before.Bytes; before = r.delivered.Load() {
		if r.delivered.CompareAndSwap(before, &p) {
			return
		}
	}
}

// Delivered returns how far the caller has read the text. A restart forgets it.
func (r *Running) Delivered() Progress {
	if p := r.delivered.Load(); p != nil {
		return *p
	}
	return Progress{}
}

// Job returns the job of a response, or nil if it has none that is unsettled.
func (s *Objects) Job(id string) *Running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[id]
}

// Detach begins to poll a job, because the call that submitted it has ended.
func (s *Objects) Detach(r *Running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attached, r.next = false, s.store.Now().Add(firstPause)
}

// Settle ends a job whose result the call that submitted it has read.
func (s *Objects) Settle(r *Running, result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.settle(r, result)
}

// settle charges a job once. The mutex of r is held.
func (s *Objects) settle(r *Running, result Result) {
	if r.settled {
		return
	}
	r.settled = true
	if more := result.Cost - r.reservation.Amount(); more > 0 {
		if r.reservation.Amount() > 0 {
			_, _ = r.reservation.Grow(more) // the missing amount is uncollected
		} else if late, err := s.reserve(context.Background(), r.Object.Job.Payer, result.Cost); err == nil {
			r.reservation.Release()
			r.reservation = late
		}
	}
	charged := r.reservation.SettleOnce(result.Call, result.Cost, func(t storage.Txn) (bool, error) {
		before, err := objects.Get(t, hashOf(r.Object.ID))
		if err != nil || before == nil || before.Job == nil || before.Job.Call.ID != r.Object.Job.Call.ID {
			return false, err
		}
		after := *before
		after.Job = nil
		if after.Deleted {
			return true, objects.Put(t, before, nil)
		}
		return true, objects.Put(t, before, &after)
	})
	s.mu.Lock()
	delete(s.jobs, r.Object.ID)
	s.mu.Unlock()
	if result.Done != nil {
		result.Done(charged)
	}
}

// Jobs returns the number of jobs that are not settled, and the amount that was reserved for them.
func (s *Objects) Jobs() (n int, reserved money.Amount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.jobs {
		reserved += r.Object.Job.Amount
	}
	return len(s.jobs), reserved
}

// maxPolls is how many jobs are polled at the same time.
const maxPolls = 16

// pollInterval is how often Run looks for jobs that are due.
const pollInterval = 250 * time.Millisecond

// Run polls the jobs until ctx ends. It returns after the last poll.
func (s *Objects) Run(ctx context.Context, poll Poller) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var polls sync.WaitGroup
	defer polls.Wait()
	free := make(chan struct{}, maxPolls)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, r := range s.due() {
			select {
			case <-ctx.Done():
				r.mu.Unlock()
				continue
			case free <- struct{}{}:
			}
			polls.Go(func() {
				defer func() { <-free }()
				defer r.mu.Unlock()
				s.poll(ctx, r, poll)
			})
		}
	}
}

// due returns the jobs that must be polled now, with their mutexes held.
func (s *Objects) due() (due []*Running) {
	now := s.store.Now()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.jobs))
	s.mu.Unlock()
	for _, r := range all {
		if !r.mu.TryLock() {
			continue
		}
		if r.settled || r.attached || now.Before(r.next) {
			r.mu.Unlock()
			continue
		}
		due = append(due, r)
	}
	return due
}

// PollNow polls the job of a response at once. It reports whether the response has no unsettled job
// afterwards.
func (s *Objects) PollNow(ctx context.Context, id string, poll Poller) bool {
	r := s.Job(id)
	if r == nil {
		return !s.elsewhere(ctx, id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.settled && !r.attached {
		s.poll(ctx, r, poll)
	}
	return r.settled
}

// elsewhere reports whether another node polls the job of a response.
func (s *Objects) elsewhere(ctx context.Context, id string) (polls bool) {
	if !s.store.Shared() {
		return false
	}
	err := s.store.View(ctx, func(r storage.Reader) error {
		o, err := objects.Get(r, hashOf(id))
		polls = o != nil && o.Job != nil
		return err
	})
	return polls || err != nil
}

// poll polls a job, and settles it if it has ended or is given up. The mutex of r is held.
func (s *Objects) poll(ctx context.Context, r *Running, poll Poller) {
	s.learnReadings(ctx, r)
	state, result := poll(ctx, r)
	now := s.store.Now()
	r.next, r.pause = now.Add(r.pause), min(r.pause*3/2, lastPause)
	if state == Missing {
		r.missing++
	} else {
		r.missing = 0
	}
	age := now.Sub(time.UnixMilli(r.Object.Job.Call.Time))
	switch {
	case ctx.Err() != nil && state != Ended: // the gateway stops
	case state == Ended:
		s.settle(r, result)
	case r.missing >= maxMissing, age > GiveUp:
		s.log.Error("a background response cannot be settled; nothing is charged for it", zap.String("request_id", r.Object.Job.Call.ID),
			zap.String("response", r.Object.ID), zap.String("user_id", r.Object.User), zap.String("backend", r.Object.Backend),
			zap.Stringer("reserved", r.Object.Job.Amount), zap.Duration("age", age))
		s.settle(r, Result{Call: Unsettled(r.Object.Job.Call, now)})
	}
}
