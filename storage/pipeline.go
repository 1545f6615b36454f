package storage

import (
	"context"
	"time"
)

// Sole is implemented by engines to which only one [Store] writes, and whose
// reads stay valid after their transaction. With such an engine, the next batch
// runs while the previous one is being made durable.
type Sole interface {
	// Sole reports whether the engine has these two properties.
	Sole() bool
}

// latester is implemented by [Sole] engines for which a snapshot costs more than a read.
type latester interface {
	// Latest runs fn with a reader of the last commit. Store calls it while no commit is in
	// progress. If it begins one before fn has returned, fn may see a part of that commit,
	// which the layer on top of the reader replaces.
	Latest(ctx context.Context, fn func(Reader) error) error
}

// latest runs fn with what the last commit has left.
func (s *Store) latest(fn func(Reader) error) error {
	if e, ok := s.engine.(latester); ok {
		return e.Latest(context.Background(), fn)
	}
	return s.engine.View(context.Background(), fn)
}

func isSole(e Engine) bool {
	s, ok := e.(Sole)
	return ok && s.Sole()
}

// efficientBatch is the least number of closures for which a commit is efficient.
const efficientBatch = 8

// pipeline commits jobs and those that arrive meanwhile, until no more arrive.
// It returns jobs that have arrived and must wait for more Posts.
//
// A batch reads a snapshot from before the commit in progress and, on top of it,
// the writes of that commit. It thus reads the same values as after the commit.
// It becomes durable after that commit, and its callers get their outcome after
// it. If that commit fails, the batch runs again.
func (s *Store) pipeline(jobs []*job) (rest []*job) {
	var ready, spare *batch // ready has run; spare is finished and can be reused
	for {
		var sent *runningCommit // of ready
		var next *batch
		err := s.latest(func(r Reader) error {
			if ready == nil {
				first := newBatch(r)
				for _, j := range jobs {
					if err := first.add(j); err != nil {
						return err
					}
				}
				ready = first
			}
			sent = s.startCommit(ready)
			next = spare.reuse(&layer{r, ready.pending})
			return s.runAhead(next, sent)
		})
		switch {
		case sent == nil: // the snapshot could not be read
			s.conclude(s.taken, false, err)
			return nil
		case sent.err != nil:
			s.conclude(ready.jobs, sent.refused, sent.err)
			if rest := s.taken[len(ready.jobs):]; len(rest) > 0 {
				s.commit(rest)
			}
			return nil
		}
		s.taken = s.taken[len(ready.jobs):]
		switch {
		case s.Err() != nil:
			s.commit(s.taken)
			return nil
		case err != nil:
			s.conclude(s.taken, false, err)
			return nil
		case len(next.jobs) == 0:
			return s.taken
		}
		ready, spare = next, ready
	}
}

// runningCommit is a commit in progress.
type runningCommit struct {
	jobs     int
	began    time.Time
	finished chan struct{} // closed when its jobs have their outcome, or when it has failed
	refused  bool          // as attempt returns it
	err      error         // the cause of the failure
}

// startCommit commits a batch and gives its jobs their outcome, on a goroutine of
// its own.
func (s *Store) startCommit(b *batch) *runningCommit {
	f := &runningCommit{jobs: len(b.jobs), began: time.Now(), finished: make(chan struct{})}
	go func() {
		defer close(f.finished)
		concluded := false
		defer func() {
			if !concluded { // a done called runtime.Goexit
				s.fail(errGoexit)
				s.finishAll(b.jobs, s.unknownOutcome())
			}
		}()
		f.err = s.engine.Update(context.Background(), func(t Txn) error {
			err := b.apply(t)
			f.refused = err != nil
			return err
		})
		if f.err == nil {
			s.conclude(b.jobs, false, nil)
		}
		concluded = true
	}()
	return f
}

// runAhead takes and runs the jobs that arrive while a commit is in progress. If
// all of them are Posts, it takes them without running them: they wait for more
// Posts.
func (s *Store) runAhead(b *batch, f *runningCommit) error {
	defer func() { <-f.finished }() // also when a closure ends the goroutine
	var (
		waiting []*job // taken but not run
		busy    time.Duration
		urgent  = s.opts.Gather <= 0
		queue   = s.queue
		full    = s.full()
	)
	run := func() error {
		began := time.Now()
		for _, j := range waiting {
			if err := b.add(j); err != nil {
				return err
			}
		}
		waiting = waiting[:0]
		busy += time.Since(began)
		return nil
	}
	take := func(j *job) error {
		s.taken, waiting = append(s.taken, j), append(waiting, j)
		if urgent = urgent || j.urgent; urgent {
			return run()
		}
		return nil
	}

	for running := true; running; {
		if len(b.jobs)+len(waiting) == full {
			queue = nil
		}
		select {
		case j, ok := <-queue:
			if !ok {
				queue = nil
			} else if err := take(j); err != nil {
				return err
			}
		case <-f.finished:
			running = false
		}
	}
	if f.err != nil || !urgent {
		return nil
	}
	// More callers are already waiting, and those that this commit has woken
	// are about to call again. If their closures take little time compared with
	// a commit, the next commit includes them. Otherwise the disk would be idle,
	// so the next commit starts with the closures that have run, if they are enough
	// for an efficient commit.
	ran := max(len(b.jobs), 1)
	each, more := busy/time.Duration(ran), len(s.queue)+f.jobs
	switch {
	case each*time.Duration(more) < time.Since(f.began)/4:
		s.yieldToCallers(full - len(b.jobs))
	case min(f.jobs, ran) >= efficientBatch:
		return nil
	}
	for range min(len(s.queue), full-len(b.jobs)) {
		j, ok := <-s.queue
		if !ok {
			break
		}
		if err := take(j); err != nil {
			return err
		}
	}
	return nil
}
