package caddymodule

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// lease is a configuration's hold on a runtime. It lasts until the configuration
// has stopped and its last call has ended.
type lease struct {
	app     *App
	logger  *zap.Logger
	opened  chan struct{} // closed once start has run
	runtime *Runtime      // nil when start failed; written before opened is closed
	holds   atomic.Int64  // one for the configuration, one for each call
	once    sync.Once

	adoption // of the configuration by the runtime
}

func newLease(a *App) *lease {
	return &lease{app: a, logger: a.logger, opened: make(chan struct{}), adoption: newAdoption()}
}

// start opens the runtime or joins it, and has the tasks driven as the configuration
// says. Calls that come meanwhile wait.
func (l *lease) start() (err error) {
	defer close(l.opened)
	runtime, err := l.take()
	if err != nil {
		return err
	}
	l.runtime = runtime
	l.holds.Store(1)
	if l.exclusive, err = runtime.check(context.Background(), l.app); err != nil {
		return err
	}
	if err := runtime.serve(l.app); err != nil {
		return err
	}
	l.watching.Go(l.watch)
	return nil
}

// take joins the runtime of the pool, opening it if it is not there.
func (l *lease) take() (*Runtime, error) {
	value, joined, err := runtimes.LoadOrNew(l.app.opener.Key(), func() (caddy.Destructor, error) {
		return openRuntime(context.Background(), l.app)
	})
	if err != nil {
		return nil, err
	}
	if joined {
		l.logger.Debug("joined the open runtime", zap.String("store", l.app.opener.Key()))
	}
	return value.(*Runtime), nil
}

// stop releases the configuration's own hold. Caddy calls it twice, as Stop
// and as Cleanup, and also when the start has failed. When the process ends it
// does nothing: apps stop in random order, servers may still be serving, and
// the hook above closes the store after all of them.
func (l *lease) stop() {
	l.stopWatching()
	if caddy.Exiting() {
		return
	}
	l.once.Do(func() {
		if l.runtime != nil {
			l.release()
		}
	})
}

// unserve has no tasks driven by the configuration any more.
func (l *lease) unserve() {
	if l.runtime != nil {
		l.runtime.unserve(l.app)
	}
}

func (l *lease) release() {
	if l.holds.Add(-1) == 0 {
		l.giveBack()
	}
}

func (l *lease) giveBack() {
	if _, err := runtimes.Delete(l.app.opener.Key()); err != nil {
		l.logger.Error("closing the store", zap.Error(err))
	}
}

// openPatience is how long a call waits for a runtime that is being opened: apps
// start in random order, so the server may listen before the store is open.
const openPatience = 10 * time.Second

// hold returns the runtime with a hold on it, and the function that releases it.
func (l *lease) hold(ctx context.Context) (*Runtime, func(), error) {
	select {
	case <-l.opened:
	default:
		timer := time.NewTimer(openPatience)
		defer timer.Stop()
		select {
		case <-l.opened:
		case <-timer.C:
			return nil, nil, errors.New("the store is still being opened")
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if l.runtime == nil {
		return nil, nil, errors.New("the store could not be opened")
	}
	for {
		holds := l.holds.Load()
		if holds == 0 {
			// A request that came in after the last one of a stopped
			// configuration had ended: it takes a hold of its own.
			runtime, err := l.take()
			return runtime, l.giveBack, err
		}
		if l.holds.CompareAndSwap(holds, holds+1) {
			return l.runtime, l.release, nil
		}
	}
}

// Enter admits a call: it returns the runtime, which stays open until leave is called.
// It waits while the store is being opened. If the store has failed or the process ends,
// it refuses the call.
func (a *App) Enter(ctx context.Context) (runtime *Runtime, leave func(), refused *fault.Fault) {
	rt, release, err := a.InForce(ctx) // a closure over the result would move that to the heap
	if err != nil {
		a.logger.Error("a call found no store", zap.Error(err))
		return nil, nil, closedNow
	}
	rt.calls.Add(1)
	leave = func() {
		rt.calls.Add(-1)
		release()
	}
	if rt.open() != nil { // the store has logged why
		leave()
		return nil, nil, closedNow
	}
	return rt, leave, nil
}

// closedNow is the fault for callers if the store is not open.
var closedNow = fault.New(fault.StoreUnavailable, "the gateway cannot take calls now; try again later").After(5 * time.Second)

// InForce returns the runtime as [App.Runtime] does, as soon as what the configuration
// changes there is in force.
func (a *App) InForce(ctx context.Context) (runtime *Runtime, release func(), err error) {
	runtime, release, err = a.lease.hold(ctx)
	if err != nil || a.lease.done.Load() {
		return runtime, release, err
	}
	if err := a.lease.await(ctx); err != nil {
		release()
		return nil, nil, err
	}
	return runtime, release, nil
}

// Runtime returns the runtime without counting a call, for health and status routes;
// release gives it back.
func (a *App) Runtime(ctx context.Context) (runtime *Runtime, release func(), err error) {
	return a.lease.hold(ctx)
}
