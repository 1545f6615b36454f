package storage

import (
	"context"
	"time"
)

// Sole is implemented by engines that nobody but one [Store] writes to, and
// whose reads stay valid beyond their transaction. Over such an engine a batch
// runs while the one before it is being made durable.
type Sole interface {
	// Sole tells whether the engine is such a one.
	Sole() bool
}

func isSole(e Engine) bool {
	s, ok := e.(Sole)
	return ok && s.Sole()
}

// enough is how many closures share the cost of a commit well.
const enough = 8

// pipeline commits jobs and those that come meanwhile, until nobody comes any
// more. It returns those that have come and are still to be gathered.
//
// A batch runs over a snapshot from before the batch that is being made durable,
// and over the writes of that one, so that it sees what it would see after it.
// What rests on those writes is made durable after them and told after them. If
// they fail, it runs again.
func (s *Store) pipeline(jobs []*job) (ungathered []*job) {
	var ready, spare *batch // has run, and has been told
	for {
		var sent *flight // of ready
		var next *batch
		err := s.engine.View(context.Background(), func(r Reader) error {
			if ready == nil {
				first := newBatch(r)
				for _, j := range jobs {
					if err := first.add(j); err != nil {
						return err
					}
				}
				ready = first
			}
			sent = s.launch(ready)
			next = spare.again(&layer{r, ready.pending})
			return s.runAhead(next, sent)
		})
		switch {
		case sent == nil: // nothing could be read
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

// flight is a batch on its way to the medium.
type flight struct {
	jobs    int
	began   time.Time
	landed  chan struct{} // closed when its jobs have been told, or when it has failed
	refused bool          // as attempt returns it
	err     error         // why it has failed
}

// launch makes a batch durable, and tells its jobs, on a goroutine of its own.
func (s *Store) launch(b *batch) *flight {
	f := &flight{jobs: len(b.jobs), began: time.Now(), landed: make(chan struct{})}
	go func() {
		defer close(f.landed)
		told := false
		defer func() {
			if !told { // a done called runtime.Goexit
				s.fail(errGoexit)
				s.finishAll(b.jobs, s.inDoubt())
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
		told = true
	}()
	return f
}

// runAhead takes jobs while a flight is on its way, and those that have come
// when it lands, and runs them. Jobs that are not urgent, and that nobody urgent
// joins, it takes and does not run: they are to be gathered.
func (s *Store) runAhead(b *batch, f *flight) error {
	defer func() { <-f.landed }() // also when a closure ends the goroutine
	var (
		waiting []*job // taken, and not run
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

	for flying := true; flying; {
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
		case <-f.landed:
			flying = false
		}
	}
	if f.err != nil || !urgent {
		return nil
	}
	// Others wait already, and whom this flight has woken are about to ask again.
	// Where their closures take little time beside a commit, the next one takes them
	// along. Else the medium would idle meanwhile: the next one begins with what has
	// run, if that is enough to share what each commit costs.
	ran := max(len(b.jobs), 1)
	each, more := busy/time.Duration(ran), len(s.queue)+f.jobs
	switch {
	case each*time.Duration(more) < time.Since(f.began)/4:
		s.letCome(full - len(b.jobs))
	case min(f.jobs, ran) >= enough:
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
