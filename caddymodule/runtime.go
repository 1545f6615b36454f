package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Runtime is one running instance of the gateway inside a Caddy process: the open
// store and the services over it. It outlives a configuration, because a reload
// starts the new configuration before it stops the old one; configurations with the
// same store share one Runtime. All of it can be rebuilt from the store.
type Runtime struct {
	Store     *storage.Store
	Directory *identity.Directory
	Ledger    *ledger.Ledger
	Billing   *billing.Service
	Tasks     *task.Engine
	Media     *media.Archive
	Rates     *limit.RateLimiter
	Detached  limit.KeyedSemaphore // of calls that run on without their callers, by user
	Keyring   *seal.Keyring

	Bodies BodyBudgets

	calls    atomic.Int64 // under way
	verified atomic.Int64 // problems that the last verify found
	draining atomic.Bool
	logger   *zap.Logger

	key    string        // of the storage
	closed chan struct{} // closed when the store is

	life context.Context // of open calls; ends when the process cannot wait for them
	end  context.CancelCauseFunc

	closing sync.Once
	swept   chan struct{} // closed when the sweeper has ended

	serving  serving // the configurations by which tasks are driven
	adopting sync.Mutex
	adopted  atomic.Pointer[App] // the configuration that was live last
	counting counting            // of what is not over
	usable   usable              // what backends answered last

	announcing sync.Once  // of the setup code
	rotating   sync.Mutex // held while the master key is changed

	probe struct {
		sync.Mutex
		at  time.Time
		err error
	}
}

// runtimes are the runtimes in use, by the key of their storage. ends has, by the same
// keys, the channel that is closed when the last runtime of a place is: the pool
// releases a runtime before it is closed, and the next one of that place must wait.
var (
	runtimes = caddy.NewUsagePool()
	ends     sync.Map // string → chan struct{}
)

func init() {
	// One hook for the process: Caddy's per-configuration hooks do not fire for
	// apps.
	caddy.OnExit(func(ctx context.Context) {
		beginExit()         // the last configuration may have watched for nothing
		var open []*Runtime // drained outside of Range, which keeps calls from giving them back
		runtimes.Range(func(_, value any) bool {
			open = append(open, value.(*Runtime))
			return true
		})
		for _, runtime := range open {
			runtime.drain(ctx)
		}
	})
}

// openRuntime opens the engine and loads the state in memory, for the configuration a.
// The pool ensures that a place is opened once at a time. If an earlier runtime of the
// place is still closing, openRuntime waits for it.
func openRuntime(ctx context.Context, a *App) (*Runtime, error) {
	opener, logger := a.opener, a.logger
	if before, ok := ends.Load(opener.Key()); ok {
		select {
		case <-before.(chan struct{}):
		case <-time.After(openPatience):
			return nil, errors.New("the store is still being closed by a configuration before this one")
		}
	}
	engine, err := opener.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	store := storage.New(engine, storage.Options{Logger: logger.Named("store"), Clock: clockOf(opener)})
	runtime := &Runtime{Store: store, key: opener.Key(), logger: logger, closed: make(chan struct{}), swept: make(chan struct{}), Rates: limit.NewRateLimiter()}
	runtime.Bodies.clock(store.Now)
	runtime.life, runtime.end = context.WithCancelCause(context.Background())
	if err := storage.CheckFormat(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if runtime.Keyring, err = a.Secrets.open(ctx, store, opener); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if runtime.Directory, err = identity.Open(ctx, store, runtime.Keyring, logger.Named("audit")); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	runtime.Ledger, err = ledger.Open(ctx, store, ledger.Options{
		Sources: billing.Sources(store.Now), Logger: logger.Named("ledger"),
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	runtime.configure(a)
	runtime.Billing = billing.NewService(store, runtime.Ledger, runtime.Directory, logger.Named("billing"))
	runtime.Tasks = task.Open(store, runtime.Ledger, task.Options{OnAudit: runtime.Directory.Audit.OnAudit, Logger: logger.Named("tasks")})
	runtime.Media = media.Open(store, media.Options{Logger: logger.Named("media")})
	if err := runtime.drive(a, nil); err != nil { // who opens the runtime may have stopped already
		runtime.closeTasks(ctx)
		runtime.Ledger.Close(ctx)
		return nil, errors.Join(err, store.Close())
	}
	go runtime.sweep()
	ends.Store(runtime.key, runtime.closed)
	return runtime, nil
}

// clockOf returns the clock of a store that has its own, for instance because several
// machines share it; nil means the clock of this machine.
func clockOf(opener storage.Opener) func() time.Time {
	if own, ok := opener.(storage.Clocker); ok {
		return own.Now
	}
	return nil
}

// Destruct closes the store when the last configuration and the last call have released
// it.
func (rt *Runtime) Destruct() error {
	defer close(rt.closed)
	ctx, cancel := context.WithTimeout(context.Background(), settlePatience)
	defer cancel()
	return rt.close(ctx)
}

// close stops the background work, waits until the charges of calls are durable, and
// closes the store.
func (rt *Runtime) close(ctx context.Context) error {
	rt.closing.Do(func() {
		rt.end(ErrEnding)
		<-rt.swept
		rt.closeTasks(ctx)
		rt.Ledger.Close(ctx)
	})
	return rt.Store.Close()
}

// closeTasks lets requests to backends end: a job whose submission is cut off would be in
// an unknown state at the next start. Longer work, such as copies, resumes then.
func (rt *Runtime) closeTasks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exitPatience)
	defer cancel()
	rt.Tasks.Close(ctx)
	rt.Media.Close()
}

// sweepEvery is the time between two sweeps.
const sweepEvery = time.Minute

// sweep handles periodically what changes only with time, until the runtime is closed.
func (rt *Runtime) sweep() {
	defer close(rt.swept)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-rt.life.Done():
			return
		case <-tick.C:
			rt.Ledger.Sweep()
			for _, room := range []struct {
				what  string
				sweep func(context.Context) error
			}{
				{"keeping records for as long as is configured", rt.keep},
				{"looking after subscriptions and orders", rt.Billing.Sweep},
				{"removing old tasks", rt.Tasks.Sweep},
				{"removing old files", rt.Media.Sweep},
			} {
				if err := room.sweep(rt.life); err != nil && rt.life.Err() == nil {
					rt.logger.Error(room.what, zap.Error(err))
				}
			}
		}
	}
}

// When the process ends, open calls have had the servers' grace period. Then
// they may still end by themselves for exitPatience; those that do not are
// cancelled, and have settlePatience to tell their callers and to settle.
const (
	exitPatience   = 8 * time.Second
	settlePatience = 2 * time.Second
)

// drain refuses new calls, waits for the open ones, and closes the store.
func (rt *Runtime) drain(ctx context.Context) {
	rt.draining.Store(true)
	if !rt.settled(ctx, exitPatience) {
		rt.end(ErrEnding)
		if !rt.settled(ctx, settlePatience) {
			rt.logger.Error("calls were still open at exit", zap.Int64("calls", rt.calls.Load()))
		}
	}
	if err := rt.close(ctx); err != nil {
		rt.logger.Error("closing the store", zap.Error(err))
	}
}

// settled waits until no call is open, at most for patience.
func (rt *Runtime) settled(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for rt.calls.Load() > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// StoreKey returns the key of the storage, which tells stores apart.
func (rt *Runtime) StoreKey() string { return rt.key }

// Calls returns the number of calls in flight.
func (rt *Runtime) Calls() int64 { return rt.calls.Load() }

// Logger returns the logger of the configuration that opened the store.
func (rt *Runtime) Logger() *zap.Logger { return rt.logger }

// SetMismatches sets how many problems the last verification of the store found, for
// the metrics.
func (rt *Runtime) SetMismatches(problems int64) { rt.verified.Store(problems) }

// OnEnd calls fn when the process can no longer wait for a call, unless stop is called
// first.
func (rt *Runtime) OnEnd(fn func()) (stop func() bool) { return context.AfterFunc(rt.life, fn) }

// ErrEnding is the cause of the end of a [Lifetime].
var ErrEnding = errors.New("the process ends")

// Lifetime is a context that ends with [ErrEnding] when the process can no longer wait
// for a call. It has the values of another context, but does not end with it.
type Lifetime struct {
	context.Context // ends it
	values          context.Context
}

// Lifetime returns a [Lifetime] with the values of ctx.
func (rt *Runtime) Lifetime(ctx context.Context) Lifetime { return Lifetime{rt.life, ctx} }

// Value implements context.Context. Contexts that are made of l ask for the one
// that cancels them by a key of package context: they find it first, and need no
// goroutine.
func (l Lifetime) Value(key any) any {
	if value := l.Context.Value(key); value != nil {
		return value
	}
	return l.values.Value(key)
}

// Ready returns why no more calls should be sent here, or nil.
func (rt *Runtime) Ready() error {
	if caddy.Exiting() {
		return ErrDraining
	}
	return rt.open()
}

// open returns why no call can be taken, or nil. While the process ends, calls
// are taken as long as servers are up: an operator's shutdown_delay is for them.
func (rt *Runtime) open() error {
	if rt.draining.Load() {
		return ErrDraining
	}
	if err := rt.Store.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// ErrDraining says that the process is about to end.
var ErrDraining = errors.New("draining: the process is about to end")

// probeEvery is how often a readiness probe writes at most: probes come from
// many balancers, and a synced write is not free.
const probeEvery = time.Second

// Probe writes to the store and returns why that failed, or nil. Within a second
// of the last probe it answers as that did.
func (rt *Runtime) Probe(ctx context.Context) error {
	rt.probe.Lock()
	defer rt.probe.Unlock()
	if time.Since(rt.probe.at) < probeEvery {
		return rt.probe.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openPatience)
	defer cancel()
	rt.probe.err = rt.Store.Update(ctx, func(t storage.Txn) error {
		return t.Set([]byte("meta/probe"), []byte(rt.Store.Now().UTC().Format(time.RFC3339)), time.Time{})
	})
	rt.probe.at = time.Now()
	return rt.probe.err
}
