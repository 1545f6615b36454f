package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Options are the settings of a [Store]. The zero value is ready to use.
type Options struct {
	// Clock tells the time by which records expire. Default: [time.Now].
	Clock func() time.Time

	// Queue is how many closures may be queued or running. Whoever comes to a
	// full queue waits. It bounds what a crash can forget of Posts. Default: 4096.
	Queue int

	// MaxBatch is how many closures are committed together at most. Default: 512.
	MaxBatch int

	// Gather is how long a batch made only of Posts waits for more of them. An
	// Update or a full batch ends the wait. Default: 100 ms; negative: no wait.
	Gather time.Duration

	// Logger is told of failures. Default: none.
	Logger *zap.Logger
}

// Store is all the domain sees of storage. It runs the closures given to
// Update and Post one after another, so that they are serialisable whatever the
// engine checks, and commits many of them in one engine transaction, so that
// they share its cost.
//
// A closure is rolled back alone when it returns an error or panics; its
// neighbours are committed. It sees the writes of every closure before it and
// none of a closure that failed.
//
// A closure may run more than once, so it must have no effect but on its Txn
// and on variables that it sets anew each time. It must not block, use the
// store itself, or keep what it read beyond its return. What it hands to Set
// belongs to the store from then on: closures that run later may read it.
//
// An error that the engine cannot vouch for, such as a failed sync, stops the
// Store for good: see [Store.Failed].
type Store struct {
	engine Engine
	opts   Options
	log    *zap.Logger
	sole   bool   // the engine is [Sole]
	taken  []*job // by the combiner from the queue, and not told

	slots chan struct{} // one token per closure that is queued or running
	queue chan *job     // as large as slots, so that a sender never waits
	hurry chan struct{} // a token ends the gathering of a batch
	idle  chan struct{} // closed when the combiner has ended

	failed chan struct{}      // closed by the fail stop
	life   context.Context    // ends when Close begins
	end    context.CancelFunc // of life

	mu     sync.Mutex
	cause  error          // why the store failed
	closed bool           // no call may enter any more
	users  sync.WaitGroup // Views and Backups under way
	askers sync.WaitGroup // calls on their way into the queue
	stats  Stats

	closeOnce sync.Once
	closeErr  error
}

// Stats counts what a [Store] has done.
type Stats struct {
	Queued     int    `json:"queued"`      // closures queued or running at this moment
	Batches    uint64 `json:"batches"`     // engine transactions that committed
	Committed  uint64 `json:"committed"`   // closures that committed
	RolledBack uint64 `json:"rolled_back"` // closures that failed alone, by error or panic
	Cancelled  uint64 `json:"cancelled"`   // closures whose caller left before they began
	Conflicts  uint64 `json:"conflicts"`   // batches that met ErrConflict
	Splits     uint64 `json:"splits"`      // batches run again in halves
	Unknown    uint64 `json:"unknown"`     // batches that ended in ErrUnknown
	LowSpace   uint64 `json:"low_space"`   // batches refused with ErrLowSpace
}

// New returns a Store over engine, which it owns from now on. Close ends both.
func New(engine Engine, opts Options) *Store {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Queue <= 0 {
		opts.Queue = 4096
	}
	if opts.MaxBatch <= 0 {
		opts.MaxBatch = 512
	}
	if opts.Gather == 0 {
		opts.Gather = 100 * time.Millisecond
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	s := &Store{
		engine: engine,
		opts:   opts,
		log:    opts.Logger,
		sole:   isSole(engine),
		slots:  make(chan struct{}, opts.Queue),
		queue:  make(chan *job, opts.Queue),
		hurry:  make(chan struct{}, 1),
		idle:   make(chan struct{}),
		failed: make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	go s.combine()
	return s
}

// Sole reports whether this store alone writes to its engine, so that every change of a
// record is made in this process.
func (s *Store) Sole() bool { return s.sole }

// Now returns the time by which records expire.
func (s *Store) Now() time.Time { return s.opts.Clock() }

// View runs fn over a consistent snapshot of what has been committed. What fn
// reads is valid until fn returns.
func (s *Store) View(ctx context.Context, fn func(Reader) error) error {
	if err := s.enter(&s.users); err != nil {
		return err
	}
	defer s.users.Done()
	err := s.engine.View(ctx, fn)
	if stop := s.Err(); stop != nil {
		return stop // what fn saw may be a write that did not become durable
	}
	return err
}

// Update runs fn and waits until its writes are durable. An error of fn rolls
// back and is returned as it is; a panic comes back as a [*PanicError].
//
// When ctx ends before fn has begun, fn does not run and Update returns ctx's
// error; afterwards Update waits for the outcome. An error that is ErrUnknown
// means that fn may or may not have been committed: look again. The batch that
// stops the store gets one that is both ErrUnknown and ErrStopped. After any
// other error nothing has happened.
func (s *Store) Update(ctx context.Context, fn func(Txn) error) error {
	return s.UpdateThen(ctx, fn, nil)
}

// UpdateThen is Update with a done that is told the outcome before UpdateThen
// returns. It runs as that of Post does: one after another, in the order in which
// closures ran, so that what stands in memory can follow the store step by step.
// Closures that ran later have run before it, or run beside it. It is not called for an fn that did not run because its
// caller left, nor when UpdateThen could not queue it.
func (s *Store) UpdateThen(ctx context.Context, fn func(Txn) error, done func(error)) error {
	outcome := make(chan error, 1)
	j := &job{fn: fn, urgent: true, done: func(err error) {
		defer func() { outcome <- err }() // also when done panics
		if done != nil {
			done(err)
		}
	}}
	if err := s.put(ctx, j); err != nil {
		return err
	}
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		if j.abandon() {
			return ctx.Err()
		}
		return <-outcome
	}
}

// Post queues fn and returns without waiting for it. done is called once: with
// nil after fn's writes are durable, else with an error as Update returns it.
// A full queue makes Post wait. An error of Post itself, ctx's among them,
// means that neither fn nor done will be called; once queued, ctx has no say.
//
// done runs between two commits, beside closures of the next batch: it must be
// quick and must not call the store. It may be nil.
func (s *Store) Post(ctx context.Context, fn func(Txn) error, done func(error)) error {
	return s.put(ctx, &job{fn: fn, done: done})
}

// Hurry ends the wait of a batch that gathers Posts. It does not wait itself,
// and may be called by closures and their done.
func (s *Store) Hurry() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// Flush waits until every closure queued before it has had its outcome. It
// hurries Posts that gather. Each failure is told to its own caller or done;
// the error of Flush tells of the batch that it closed.
func (s *Store) Flush(ctx context.Context) error {
	return s.Update(ctx, func(Txn) error { return nil })
}

// Backup writes a consistent copy of everything durable to w. It returns
// [errors.ErrUnsupported] when the engine cannot be copied while in use, and
// ends early when the store is closed.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	backuper, ok := s.engine.(Backuper)
	if !ok {
		return fmt.Errorf("storage: this engine takes no backups while in use: %w", errors.ErrUnsupported)
	}
	if err := s.enter(&s.users); err != nil {
		return err
	}
	defer s.users.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	err := backuper.Backup(ctx, w)
	switch {
	case s.Err() != nil:
		return s.Err() // the copy may hold a write that did not become durable
	case err != nil && s.life.Err() != nil:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// Err returns why the store has failed, wrapped in ErrStopped, or nil.
func (s *Store) Err() error {
	select {
	case <-s.failed:
		return fmt.Errorf("%w: %w", ErrStopped, s.cause)
	default:
		return nil
	}
}

// Failed is closed when the store has failed: it takes no more work, reading
// included, until a restart. A commit that failed may be visible without being
// durable: nothing may build on it, and no retry can repair it.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Stats returns the counts since New.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Queued = len(s.slots)
	return stats
}

// Close refuses new work, waits until everything that came before has had its
// outcome and every View has ended, and closes the engine. A Backup under way
// is ended. Further calls wait for the first and return its error.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.end()
		s.askers.Wait() // from here on nobody sends to the queue
		close(s.queue)
		<-s.idle
		s.users.Wait()
		s.closeErr = s.engine.Close()
	})
	return s.closeErr
}

// enter counts a call in group, for Close to wait for, or refuses it.
func (s *Store) enter(group *sync.WaitGroup) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.Err(); err != nil {
		return err
	}
	group.Add(1)
	return nil
}

// put waits for a place in the queue and puts j there.
func (s *Store) put(ctx context.Context, j *job) error {
	if err := s.enter(&s.askers); err != nil {
		return err
	}
	defer s.askers.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
		s.queue <- j
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
