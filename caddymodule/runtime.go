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
	"github.com/caddy-modelgate/modelgate/internal/mail"
	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/internal/ownership"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Runtime is one running instance of the gateway inside a Caddy process: the open
// store and its services. Configurations with the same store share one Runtime, because
// a reload starts the new configuration before it stops the old one. All of its state can
// be rebuilt from the store.
type Runtime struct {
	Store     *storage.Store
	Directory *identity.Directory
	Ledger    *ledger.Ledger
	Billing   *billing.Service
	Tasks     *task.Engine
	Media     *media.Archive
	Objects   *ownership.Objects
	Mail      *mail.Queue
	Rates     *limit.RateLimiter
	Detached  limit.KeyedSemaphore // of detached calls, by user
	Keyring   *seal.Keyring

	Bodies BodyBudgets

	Verifying sync.Mutex   // held while the store is verified
	Verified  atomic.Value // the last result of this process, a *Verification of package adminapi

	calls    atomic.Int64 // in flight
	verified atomic.Int64 // problems that the last verification found
	draining atomic.Bool
	logger   *zap.Logger

	key    string        // of the storage
	closed chan struct{} // closed when the store is

	life context.Context // of open calls; ends when the process can no longer wait for them
	end  context.CancelCauseFunc

	closing    sync.Once
	background sync.WaitGroup // the sweeper and the checks of backends

	serving  serving // the configurations whose task settings apply
	adopting sync.Mutex
	adopted  atomic.Pointer[App] // the configuration that was live last
	backlogs backlogCache
	usable   usable // the last checks of backends

	announcing sync.Mutex // held while the setup code is drawn
	announced  bool       // no setup code is drawn again; protected by announcing
	rotating   sync.Mutex // held while the master key changes

	probe struct {
		sync.Mutex
		at  time.Time
		err error
	}
}

// runtimes are the runtimes in use, by the key of their storage. closings has, by the
// same keys, a channel that is closed when the last runtime of that storage is closed.
// The pool releases a runtime before it is closed, so the next one must wait.
var (
	runtimes = caddy.NewUsagePool()
	closings sync.Map // string → chan struct{}
)

func init() {
	// One hook for the process: Caddy's per-configuration hooks do not fire for
	// apps.
	caddy.OnExit(func(ctx context.Context) {
		beginExit()         // the last configuration may have no WatchExit
		var open []*Runtime // drained outside of Range, which blocks the release of runtimes
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
// The pool ensures that a storage is opened once at a time. If an earlier runtime of the
// storage is still closing, openRuntime waits for it, at most for openTimeout.
func openRuntime(ctx context.Context, a *App) (*Runtime, error) {
	opener, logger := a.opener, a.logger
	if before, ok := closings.Load(opener.Key()); ok {
		select {
		case <-before.(chan struct{}):
		case <-time.After(openTimeout):
			return nil, errors.New("the previous configuration is still closing the store")
		}
	}
	engine, err := opener.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	store := storage.New(engine, storage.Options{Logger: logger.Named("store"), Clock: clockOf(opener)})
	runtime := &Runtime{Store: store, key: opener.Key(), logger: logger, closed: make(chan struct{}), Rates: limit.Open(store)}
	runtime.Bodies.clock(store.Now)
	runtime.life, runtime.end = context.WithCancelCause(context.Background())
	if err := storage.CheckFormat(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	self, audit := a.node(), logger.Named("audit")
	if err := store.Join(ctx, self); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if store.Shared() {
		audit = audit.With(zap.String("node", self.Name))
	}
	if runtime.Keyring, err = a.Secrets.open(ctx, store, opener); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if runtime.Directory, err = identity.Open(ctx, store, runtime.Keyring, audit); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	runtime.Ledger, err = ledger.Open(ctx, store, ledger.Options{
		Sources: billing.Sources(store.Now), Logger: logger.Named("ledger"), OnReserve: a.metrics.OnReserve(opener.Key()),
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if runtime.Objects, err = ownership.Open(ctx, store, runtime.Ledger, logger.Named("background")); err != nil {
		runtime.Ledger.Close(ctx)
		return nil, errors.Join(err, store.Close())
	}
	runtime.Mail = mail.Open(logger.Named("mail"))
	runtime.configure(a)
	runtime.Billing = billing.NewService(store, runtime.Ledger, runtime.Directory, logger.Named("billing"))
	runtime.Tasks = task.Open(store, runtime.Ledger, task.Options{OnAudit: runtime.Directory.Audit.OnAudit, Logger: logger.Named("tasks")})
	runtime.Media = media.Open(store, media.Options{Logger: logger.Named("media")})
	if err := runtime.configureTasks(a, nil); err != nil { // the configuration may have stopped already
		runtime.closeTasks(ctx)
		runtime.Ledger.Close(ctx)
		runtime.Mail.Close()
		return nil, errors.Join(err, store.Close())
	}
	runtime.follow()
	runtime.background.Go(runtime.sweep)
	runtime.background.Go(func() { runtime.Objects.Run(runtime.life, runtime.PollBackground) })
	closings.Store(runtime.key, runtime.closed)
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

// Destruct closes the store. The pool calls it when the last configuration and the last
// call have released the runtime.
func (rt *Runtime) Destruct() error {
	defer close(rt.closed)
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	return rt.close(ctx)
}

// close stops the background work, waits until the charges of calls are durable, and
// closes the store.
func (rt *Runtime) close(ctx context.Context) error {
	rt.closing.Do(func() {
		rt.end(ErrEnding)
		rt.usable.endChecks()
		rt.background.Wait()
		rt.closeTasks(ctx)
		rt.Ledger.Close(ctx)
		rt.Mail.Close()
	})
	return rt.Store.Close()
}

// closeTasks waits for requests to backends, at most for exitTimeout: an interrupted
// submission would have an unknown state at the next start. Longer work, such as copies,
// resumes then.
func (rt *Runtime) closeTasks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exitTimeout)
	defer cancel()
	rt.Tasks.Close(ctx)
	rt.Media.Close()
}

// sweepInterval is the time between two sweeps.
const sweepInterval = time.Minute

// sweep runs the periodic work until the runtime is closed.
func (rt *Runtime) sweep() {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-rt.life.Done():
			return
		case <-tick.C:
			if app := rt.adopted.Load(); rt.Store.Shared() && app != nil && app.console.served {
				rt.announceSetup(rt.life) // the node that has logged the code may have ended
			}
			rt.Ledger.Sweep() // of the memory of each process; one node sweeps the store
			if !rt.Store.Leads() {
				continue
			}
			for _, job := range []struct {
				failure string
				run     func(context.Context) error
			}{
				{"cannot apply the retention of records", rt.keep},
				{"cannot update subscriptions and orders", rt.Billing.Sweep},
				{"cannot send mails about low balances", rt.QueueBalanceMails},
				{"cannot remove old tasks", rt.Tasks.Sweep},
				{"cannot remove old files", rt.Media.Sweep},
			} {
				if err := job.run(rt.life); err != nil && rt.life.Err() == nil {
					rt.logger.Error(job.failure, zap.Error(err))
				}
			}
		}
	}
}

// When the process ends and the servers' grace period is over, open calls may still end
// by themselves for exitTimeout. The others are cancelled, and have settleTimeout to
// answer their callers and to settle.
const (
	exitTimeout   = 8 * time.Second
	settleTimeout = 2 * time.Second
)

// drain refuses new calls, waits for the open ones, and closes the store.
func (rt *Runtime) drain(ctx context.Context) {
	rt.draining.Store(true)
	if !rt.awaitCalls(ctx, exitTimeout) {
		rt.end(ErrEnding)
		if !rt.awaitCalls(ctx, settleTimeout) {
			rt.logger.Error("calls were still open at exit", zap.Int64("calls", rt.calls.Load()))
		}
	}
	if err := rt.close(ctx); err != nil {
		rt.logger.Error("closing the store", zap.Error(err))
	}
}

// awaitCalls waits until no call is in flight, at most for timeout. It returns false if
// there still is one.
func (rt *Runtime) awaitCalls(ctx context.Context, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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

// StoreKey returns the key of the storage. Each store has another key.
func (rt *Runtime) StoreKey() string { return rt.key }

// Calls returns the number of calls in flight.
func (rt *Runtime) Calls() int64 { return rt.calls.Load() }

// Logger returns the logger of the configuration that opened the store.
func (rt *Runtime) Logger() *zap.Logger { return rt.logger }

// SetMismatches sets how many problems the last verification of the store found, for
// the metrics.
func (rt *Runtime) SetMismatches(problems int64) { rt.verified.Store(problems) }

// OnEnd calls fn when the process can no longer wait for calls, unless stop is called
// first.
func (rt *Runtime) OnEnd(fn func()) (stop func() bool) { return context.AfterFunc(rt.life, fn) }

// ErrEnding is the cause with which a [Lifetime] is canceled.
var ErrEnding = errors.New("the process ends")

// Lifetime is a context that is canceled with [ErrEnding] when the process can no longer
// wait for a call. It has the values of another context, but is not canceled with it.
type Lifetime struct {
	context.Context // cancels it
	values          context.Context
}

// Lifetime returns a [Lifetime] with the values of ctx.
func (rt *Runtime) Lifetime(ctx context.Context) Lifetime { return Lifetime{rt.life, ctx} }

// Value implements context.Context. Contexts derived from l look up their canceling
// parent by a key of package context. They find it in l.Context, so they need no
// goroutine.
func (l Lifetime) Value(key any) any {
	if value := l.Context.Value(key); value != nil {
		return value
	}
	return l.values.Value(key)
}

// Ready returns an error if the gateway should get no more calls.
func (rt *Runtime) Ready() error {
	if caddy.Exiting() {
		return ErrDraining
	}
	return rt.open()
}

// open returns an error if the gateway cannot take calls. While the process ends, it
// takes calls as long as the servers run, for Caddy's shutdown_delay.
func (rt *Runtime) open() error {
	if rt.draining.Load() {
		return ErrDraining
	}
	if err := rt.Store.Ready(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// ErrDraining means that the process is about to end.
var ErrDraining = errors.New("draining: the process is about to end")

// probeInterval is the minimum time between two writes of readiness probes: many load
// balancers send probes, and each write is synced.
const probeInterval = time.Second

// Probe writes to the store and returns the error, if any. Within a second of the last
// write it returns the error of that write. A node of a shared store writes its beats instead:
// see [storage.Store.Ready].
func (rt *Runtime) Probe(ctx context.Context) error {
	if rt.Store.Shared() {
		return rt.Store.Ready()
	}
	rt.probe.Lock()
	defer rt.probe.Unlock()
	if time.Since(rt.probe.at) < probeInterval {
		return rt.probe.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	rt.probe.err = rt.Store.Update(ctx, func(t storage.Txn) error {
		return t.Set([]byte("meta/probe"), []byte(rt.Store.Now().UTC().Format(time.RFC3339)), time.Time{})
	})
	rt.probe.at = time.Now()
	return rt.probe.err
}
