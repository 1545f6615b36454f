package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Options are the settings of a [Store]. The zero value is ready to use.
type Options struct {
	// Clock returns the time by which records expire. Default: [time.Now].
	Clock func() time.Time

	// Queue is the largest number of closures that may be queued or running.
	// Update and Post wait while the queue is full. It bounds how many Posts a
	// crash can lose. Default: 4096.
	Queue int

	// MaxBatch is the largest number of closures in one commit. Default: 512.
	MaxBatch int

	// Gather is how long a batch that has only Posts waits for more of them. An
	// Update or a full batch ends the wait. Default: 100 ms; negative: no wait.
	Gather time.Duration

	// Logger receives failures. Default: none.
	Logger *zap.Logger
}

// Store is the interface of storage to the domain packages. It runs the
// closures of Update and Post one after another, so that they are serializable
// with every engine. It commits many of them in one engine
// transaction, so that they share its cost.
//
// If a closure returns an error or panics, only that closure is rolled back;
// the others of its batch are committed. A closure sees the writes of every
// closure before it, except those that failed.
//
// A closure may run more than once. It must have no effect except on its Txn
// and on variables that it sets again in each run. It must not block, use the
// store, or keep slices that it read after it returns. Slices that it passes to
// Set belong to the store, because later closures may read them.
//
// An error after which the state of the engine is unknown, such as a failed
// sync, stops the Store permanently: see [Store.Failed]. All methods may be called
// concurrently.
type Store struct {
	engine Engine
	opts   Options
	log    *zap.Logger
	sole   bool                       // the engine is [Sole]
	shared bool                       // the engine is [Shared]
	member atomic.Pointer[membership] // of a shared store, after Join
	taken  []*job                     // jobs that combine has taken from the queue and not finished

	slots     chan struct{} // one token per closure that is queued or running
	queue     chan *job     // as large as slots, so that sending never blocks
	commitNow chan struct{} // a token ends the wait of a batch for more Posts
	idle      chan struct{} // closed when combine has returned

	failed  chan struct{}      // closed by fail
	closing context.Context    // ends when Close begins
	end     context.CancelFunc // of closing

	mu      sync.Mutex
	cause   error          // why the store failed
	closed  bool           // new calls are refused
	users   sync.WaitGroup // running Views and Backups
	senders sync.WaitGroup // calls that are about to send to the queue
	stats   Stats

	failOnce sync.Once

	closeOnce sync.Once
	closeErr  error
}

// Stats has counts of a [Store] since New.
type Stats struct {
	Queued     int    `json:"queued"`      // closures queued or running now
	Batches    uint64 `json:"batches"`     // engine transactions that committed
	Committed  uint64 `json:"committed"`   // closures that committed
	RolledBack uint64 `json:"rolled_back"` // closures that failed alone, by error or panic
	Cancelled  uint64 `json:"cancelled"`   // closures whose context ended before they began
	Conflicts  uint64 `json:"conflicts"`   // batches that ended in ErrConflict
	Splits     uint64 `json:"splits"`      // batches run again in halves
	Unknown    uint64 `json:"unknown"`     // batches that ended in ErrUnknown
	LowSpace   uint64 `json:"low_space"`   // batches refused with ErrLowSpace
}

// New returns a Store that owns engine. Close closes both.
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
		engine:    engine,
		opts:      opts,
		log:       opts.Logger,
		sole:      isSole(engine),
		shared:    isShared(engine),
		slots:     make(chan struct{}, opts.Queue),
		queue:     make(chan *job, opts.Queue),
		commitNow: make(chan struct{}, 1),
		idle:      make(chan struct{}),
		failed:    make(chan struct{}),
	}
	s.closing, s.end = context.WithCancel(context.Background())
	go s.combine()
	return s
}

// Ready returns an error if the store has failed. For a node of a shared store it also returns
// an error if its last beat is too old: the other nodes may end it, and work that begins now
// would be lost. It does not block.
func (s *Store) Ready() error {
	if err := s.Err(); err != nil {
		return err
	}
	if m := s.member.Load(); m != nil {
		return m.ready()
	}
	if s.shared {
		return fmt.Errorf("%w: this gateway has not joined the store yet", ErrUnreachable)
	}
	return nil
}

// Sole reports whether only this store writes to its engine, so that every
// change of a record is made in this process.
func (s *Store) Sole() bool { return s.sole }

// Now returns the time by which records expire.
func (s *Store) Now() time.Time { return s.opts.Clock() }

// View runs fn with a consistent snapshot of all commits. Slices that fn reads are
// valid until fn returns.
func (s *Store) View(ctx context.Context, fn func(Reader) error) error {
	if err := s.enter(&s.users); err != nil {
		return err
	}
	defer s.users.Done()
	err := s.engine.View(ctx, fn)
	if stop := s.Err(); stop != nil {
		return stop // fn may have read a write that did not become durable
	}
	return err
}

// Update runs fn and waits until its writes are durable. An error of fn rolls
// fn back and is returned unchanged; a panic is returned as a [*PanicError].
//
// If ctx ends before fn begins, fn does not run and Update returns the error of
// ctx. After that, Update waits for the outcome. After ErrUnknown, fn may or
// may not have been committed: read again to find out. The batch that stops the
// store gets an error that is both ErrUnknown and ErrStopped. After any other
// error nothing has happened.
func (s *Store) Update(ctx context.Context, fn func(Txn) error) error {
	return s.UpdateThen(ctx, fn, nil)
}

// UpdateThen is Update with a callback that receives the outcome before UpdateThen
// returns. As in Post, callbacks run one after another in the order of their closures.
// State in memory can thus follow the store step by step. A callback may run concurrently
// with closures of later calls. It is not called if fn did not run because ctx ended, or
// if fn was not queued.
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

// Post queues fn and returns without waiting for it. It calls done once: with
// nil after the writes of fn are durable, or with an error as Update returns
// it. Post waits while the queue is full. If Post itself returns an error,
// which may be that of ctx, neither fn nor done is called. Once fn is queued,
// ctx has no effect.
//
// done runs between two commits, concurrently with closures of the next batch. It must be
// quick and must not call the store. It may be nil.
func (s *Store) Post(ctx context.Context, fn func(Txn) error, done func(error)) error {
	return s.put(ctx, &job{fn: fn, done: done})
}

// CommitNow ends the wait of a batch for more Posts. It does not block, and
// closures and their callbacks may call it.
func (s *Store) CommitNow() {
	select {
	case s.commitNow <- struct{}{}:
	default:
	}
}

// Flush waits until every closure queued before it has its outcome. It ends the
// wait of a batch for more Posts. Each failure goes to its own caller or
// callback; the error of Flush is that of the last batch.
func (s *Store) Flush(ctx context.Context) error {
	return s.Update(ctx, func(Txn) error { return nil })
}

// Backup writes a consistent copy of everything durable to w. It returns
// [errors.ErrUnsupported] if the engine cannot be copied while in use. Closing
// the store ends it early.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	backuper, ok := s.engine.(Backuper)
	if !ok {
		return fmt.Errorf("storage: this engine does not support backups while in use: %w", errors.ErrUnsupported)
	}
	if err := s.enter(&s.users); err != nil {
		return err
	}
	defer s.users.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	err := backuper.Backup(ctx, w)
	switch {
	case s.Err() != nil:
		return s.Err() // the copy may hold a write that did not become durable
	case err != nil && s.closing.Err() != nil:
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// Space returns the free bytes of the engine's medium, and the bound below which
// writes fail with ErrLowSpace. It returns [errors.ErrUnsupported] if the
// engine has no such bound.
func (s *Store) Space() (free, least uint64, err error) {
	spacer, ok := s.engine.(Spacer)
	if !ok {
		return 0, 0, errors.ErrUnsupported
	}
	return spacer.Space()
}

// Adopt applies those settings of a later configuration with the same key that the engine can
// change while it is open.
func (s *Store) Adopt(o Opener) {
	if engine, ok := s.engine.(Adopter); ok {
		engine.Adopt(o)
	}
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

// Failed returns a channel that is closed when the store has failed. A failed
// store refuses all calls, including reads, until a restart. A commit that
// failed may be visible without being durable, so nothing may depend on it. No
// retry can repair it.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Stats returns the counts since New.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Queued = len(s.slots)
	return stats
}

// Close refuses new calls, waits until every queued closure has its outcome and
// every View has ended, and closes the engine. It ends a running Backup.
// Further calls wait for the first and return its error.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.end()
		s.senders.Wait() // after this no goroutine sends to the queue
		close(s.queue)
		<-s.idle
		m := s.member.Load()
		if m != nil {
			m.beating.Wait()
		}
		s.users.Wait()
		if m != nil && s.Err() == nil {
			m.leave()
		}
		s.closeErr = s.engine.Close()
	})
	return s.closeErr
}

// enter registers a call in group, which Close waits for. It returns an error
// if the store is closed or failed.
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

// put waits for a slot and queues j.
func (s *Store) put(ctx context.Context, j *job) error {
	if err := s.enter(&s.senders); err != nil {
		return err
	}
	defer s.senders.Done()
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
