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

// conflictTries is how often a batch runs before its callers get ErrConflict.
const conflictTries = 8

// maxYields is the largest number of times that a batch yields to other
// goroutines before it begins. On a busy machine each yield takes time.
const maxYields = 4

// errGoexit stops the store when a closure ends the goroutine of combine.
var errGoexit = errors.New("a closure called runtime.Goexit")

// job is one queued closure.
type job struct {
	fn     func(Txn) error
	done   func(error) // receives the outcome, once; may be nil
	urgent bool        // a caller waits for the outcome: do not wait for more Posts

	state atomic.Int32 // waiting, then begun or abandoned
	err   error        // of fn, in its last run
	ended bool         // done has been called
}

const (
	waiting = iota
	begun
	abandoned
)

// begin reports whether the closure may run: its caller has not given up.
func (j *job) begin() bool {
	return j.state.CompareAndSwap(waiting, begun) || j.state.Load() == begun
}

// abandon reports whether the caller may give up: the closure has not begun.
func (j *job) abandon() bool { return j.state.CompareAndSwap(waiting, abandoned) }

// combine runs all closures, batch by batch, until the queue is closed and
// empty. It runs on one goroutine at a time.
func (s *Store) combine() {
	defer func() {
		if s.taken == nil {
			close(s.idle)
			return
		}
		// A closure called runtime.Goexit, as t.FailNow does, or the engine
		// panicked, which ends the process. The outcome of the transaction is
		// unknown, but no caller may wait forever.
		s.fail(errGoexit)
		defer func() { go s.combine() }()
		s.finishAll(s.taken, s.unknownOutcome())
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

// gather waits for work and returns the next batch, which begins with jobs. It
// returns nil when the queue is closed and empty.
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
			case <-s.commitNow:
				expired = true
			case <-timer.C:
				expired = true
			}
		}
	}
	s.yieldToCallers(full - len(jobs))
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

// full returns the largest number of jobs in a batch; no more than Queue can
// ever arrive.
func (s *Store) full() int { return min(s.opts.MaxBatch, s.opts.Queue) }

// yieldToCallers yields to the callers that the last batch woke, as long as more of
// them queue new closures, up to most. They usually call again immediately,
// which nearly fills the batch.
func (s *Store) yieldToCallers(most int) {
	for n, queued := 0, -1; n < maxYields && queued < len(s.queue) && len(s.queue) < most; n++ {
		queued = len(s.queue)
		runtime.Gosched()
	}
}

// commit runs jobs in one engine transaction and gives each its outcome.
func (s *Store) commit(jobs []*job) {
	if err := s.Err(); err != nil {
		s.finish(jobs, err)
		return
	}
	refused, err := s.attempt(jobs)
	s.conclude(jobs, refused, err)
}

// attempt runs jobs once in one engine transaction; the engine may run them
// more than once. The result refused reports that the engine refused a write,
// so that nothing has happened.
func (s *Store) attempt(jobs []*job) (refused bool, err error) {
	m, counted := s.member.Load(), false
	// Many callers share the transaction: no single context may end it.
	err = s.engine.Update(context.Background(), func(t Txn) error {
		b := newBatch(t)
		refused, counted = false, false
		if m != nil {
			if err := m.check(t); err != nil {
				return err
			}
		}
		for _, j := range jobs {
			if err := b.add(j); err != nil {
				return err // the engine's transaction is void
			}
		}
		if m != nil && b.changed() {
			counted = true
			if err := m.count(t); err != nil {
				return err
			}
		}
		err := b.apply(t)
		refused = err != nil
		return err
	})
	if m != nil && errors.Is(err, ErrUnknown) {
		err = m.outcome(err)
	}
	if err == nil && counted {
		m.batch++
	}
	return refused, err
}

// conclude handles the result of the first attempt at jobs and gives each job
// its outcome. After a conflict it runs them again. If the engine refuses the
// batch, conclude runs it again in halves, so that only a closure that the
// engine cannot accept gets its error.
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
	case errors.Is(err, ErrUnreachable):
		s.log.Warn("the store is unreachable", zap.Int("closures", len(jobs)), zap.Error(err))
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
		err = s.unknownOutcome()
	}
	s.finish(jobs, err)
}

// finish gives jobs the outcome of their batch. If the batch failed, a closure
// that had failed alone gets the error of the batch as well. Its own reason may
// depend on writes that were never committed. Each job is counted before its
// callback runs, so a caller finds its own call in the counts.
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
		s.callDone(j, outcome)
	}
}

// finishAll is finish that continues after a callback calls runtime.Goexit.
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

// callDone calls the callback of a job. It logs a panic of the callback, which
// affects no other job.
func (s *Store) callDone(j *job, outcome error) {
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

// fail stops the store permanently.
func (s *Store) fail(cause error) {
	s.failOnce.Do(func() {
		s.cause = cause
		close(s.failed)
		if errors.Is(cause, ErrFenced) {
			s.log.Warn("the other gateways have ended this one: all calls are refused", zap.Error(cause))
			return
		}
		s.log.Error("storage failed: all calls are refused until a restart", zap.Error(cause))
	})
}

// unknownOutcome returns the error of the batch that stopped the store: after a
// restart its writes may or may not exist.
func (s *Store) unknownOutcome() error {
	return fmt.Errorf("%w: %w: %w", ErrStopped, ErrUnknown, s.cause)
}

// count changes the counts.
func (s *Store) count(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}
