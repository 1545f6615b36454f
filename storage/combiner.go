package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// conflictTries is how often a batch runs before its callers hear of a conflict.
const conflictTries = 8

// turns is how often a batch lets others run before it begins, at most: where
// much else is to run, such as calls, each turn takes time.
const turns = 4

// errGoexit is why the store stops when a closure ends the combiner's goroutine.
var errGoexit = errors.New("a closure called runtime.Goexit")

// job is one closure on its way through the combiner.
type job struct {
	fn     func(Txn) error
	done   func(error) // told the outcome, once; may be nil
	urgent bool        // somebody waits: do not gather

	state atomic.Int32 // waiting, then begun or abandoned
	err   error        // of fn, in its last run
	ended bool         // the outcome has been told
}

const (
	waiting = iota
	begun
	abandoned
)

// begin reports whether the closure may run: its caller has not left.
func (j *job) begin() bool {
	return j.state.CompareAndSwap(waiting, begun) || j.state.Load() == begun
}

// abandon reports whether the caller may leave: the closure has not begun.
func (j *job) abandon() bool { return j.state.CompareAndSwap(waiting, abandoned) }

// combine runs all closures, batch by batch, until the queue is closed and
// empty. Only one goroutine does so at a time.
func (s *Store) combine() {
	defer func() {
		if s.taken == nil {
			close(s.idle)
			return
		}
		// A closure called runtime.Goexit, as t.FailNow does, or the engine
		// panicked, which ends the process. What came of the transaction is
		// unknown, but nobody shall wait for ever.
		s.fail(errGoexit)
		defer func() { go s.combine() }()
		s.finishAll(s.taken, s.inDoubt())
	}()
	for s.taken = s.gather(nil); s.taken != nil; s.taken = s.gather(s.taken) {
		if s.sole && s.Err() == nil {
			s.taken = s.pipeline(s.taken)
		} else {
			s.commit(s.taken)
			s.taken = nil
		}
	}
}

// gather waits for work and returns the next batch, which begins with jobs; nil
// at the end of the queue.
func (s *Store) gather(jobs []*job) []*job {
	if len(jobs) == 0 {
		first, ok := <-s.queue
		if !ok {
			return nil
		}
		jobs = []*job{first}
	}
	full := s.full()

	if s.opts.Gather > 0 && s.Err() == nil {
		timer := time.NewTimer(s.opts.Gather)
		defer timer.Stop()
		for expired := false; !expired && !jobs[len(jobs)-1].urgent && len(jobs) < full; {
			select {
			case j, ok := <-s.queue:
				if !ok {
					return jobs
				}
				jobs = append(jobs, j)
			case <-s.hurry:
				expired = true
			case <-timer.C:
				expired = true
			}
		}
	}
	s.letCome(full - len(jobs))
	for len(jobs) < full {
		select {
		case j, ok := <-s.queue:
			if !ok {
				return jobs
			}
			jobs = append(jobs, j)
		default:
			return jobs
		}
	}
	return jobs
}

// full is how many jobs a batch has at most: more than Queue can never come.
func (s *Store) full() int { return min(s.opts.MaxBatch, s.opts.Queue) }

// letCome lets those run whom the last batch woke, while more of them come than
// before, up to so many: they are about to ask again, and that nearly fills the
// batch.
func (s *Store) letCome(most int) {
	for turn, came := 0, -1; turn < turns && came < len(s.queue) && len(s.queue) < most; turn++ {
		came = len(s.queue)
		runtime.Gosched()
	}
}

// commit runs jobs in one engine transaction and tells each its outcome.
func (s *Store) commit(jobs []*job) {
	if err := s.Err(); err != nil {
		s.finish(jobs, err)
		return
	}
	refused, err := s.attempt(jobs)
	s.conclude(jobs, refused, err)
}

// attempt runs jobs once in one engine transaction, in which the engine may run
// them more than once. It reports whether the error is that of a write which
// the engine did not take, so that nothing has happened.
func (s *Store) attempt(jobs []*job) (refused bool, err error) {
	// Many callers share the transaction: no single context may end it.
	err = s.engine.Update(context.Background(), func(t Txn) error {
		b := newBatch(t)
		refused = false
		for _, j := range jobs {
			if err := b.add(j); err != nil {
				return err // the engine's transaction is void
			}
		}
		err := b.apply(t)
		refused = err != nil
		return err
	})
	return refused, err
}

// conclude does what is left to do after the first attempt at jobs, and tells
// each its outcome. After a conflict they run again. A batch that the engine does
// not take is run again in halves, so that a closure that cannot be taken ends up
// alone with its error.
func (s *Store) conclude(jobs []*job, refused bool, err error) {
	for try := 1; errors.Is(err, ErrConflict) && try < conflictTries; try++ {
		s.count(func(stats *Stats) { stats.Conflicts++ })
		time.Sleep(time.Millisecond << try)
		refused, err = s.attempt(jobs)
	}
	switch {
	case err == nil:
		s.count(func(stats *Stats) { stats.Batches++ })
	case errors.Is(err, ErrConflict):
		s.count(func(stats *Stats) { stats.Conflicts++ })
	case errors.Is(err, ErrLowSpace):
		s.count(func(stats *Stats) { stats.LowSpace++ })
	case errors.Is(err, ErrUnknown):
		s.count(func(stats *Stats) { stats.Unknown++ })
		s.log.Warn("commit outcome unknown", zap.Int("closures", len(jobs)), zap.Error(err))
	case errors.Is(err, ErrTooLarge), refused:
		if half := len(jobs) / 2; half > 0 {
			s.count(func(stats *Stats) { stats.Splits++ })
			s.commit(jobs[:half])
			s.commit(jobs[half:])
			return
		}
	default:
		s.fail(err)
		err = s.inDoubt()
	}
	s.finish(jobs, err)
}

// finish tells jobs the outcome of their batch. When the batch failed, a
// closure that failed alone is told so too: its reason may rest on writes that
// were never committed. Each is counted before it is told: who has heard finds
// himself in the counts.
func (s *Store) finish(jobs []*job, err error) {
	for _, j := range jobs {
		if j.ended {
			continue
		}
		j.ended = true
		<-s.slots
		outcome := err
		switch {
		case j.state.Load() == abandoned:
			s.count(func(stats *Stats) { stats.Cancelled++ })
			continue
		case err != nil:
		case j.err != nil:
			outcome = j.err
			s.count(func(stats *Stats) { stats.RolledBack++ })
		default:
			s.count(func(stats *Stats) { stats.Committed++ })
		}
		s.tell(j, outcome)
	}
}

// finishAll is finish, whichever done calls runtime.Goexit.
func (s *Store) finishAll(jobs []*job, err error) {
	all := false
	defer func() {
		if !all {
			s.finishAll(jobs, err)
		}
	}()
	s.finish(jobs, err)
	all = true
}

// tell hands a job's outcome to its caller. A panic of done is logged: it
// concerns nobody else.
func (s *Store) tell(j *job, outcome error) {
	var p *PanicError
	if errors.As(outcome, &p) {
		s.log.Error("closure panicked", zap.Any("panic", p.Value), zap.ByteString("stack", p.Stack))
	}
	if j.done == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("callback of a Post panicked", zap.Any("panic", v), zap.Stack("stack"))
		}
	}()
	j.done(outcome)
}

// fail stops the store for good.
func (s *Store) fail(cause error) {
	if s.Err() != nil {
		return
	}
	s.cause = cause
	close(s.failed)
	s.log.Error("storage failed: no more work is taken until a restart", zap.Error(cause))
}

// inDoubt is what the callers of the batch that stopped the store are told: it
// may or may not be found committed after the restart.
func (s *Store) inDoubt() error {
	return fmt.Errorf("%w: %w: %w", ErrStopped, ErrUnknown, s.cause)
}

// count changes the counts.
func (s *Store) count(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}
