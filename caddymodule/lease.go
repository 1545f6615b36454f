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

// lease is a configuration's use of a runtime. It ends when the configuration has
// stopped and its last call has ended.
type lease struct {
	app     *App
	logger  *zap.Logger
	opened  chan struct{} // closed once start has run
	runtime *Runtime      // nil when start failed; written before opened is closed
	users   atomic.Int64  // one for the configuration, one for each call
	once    sync.Once
	joining atomic.Bool // the epoch of this process has ended, and it joins anew

	adoption // of the configuration by the runtime
}

func newLease(a *App) *lease {
	return &lease{app: a, logger: a.logger, opened: make(chan struct{}), adoption: newAdoption()}
}

// start opens the runtime or joins it, and applies the task settings of the
// configuration. Calls wait meanwhile.
func (l *lease) start() error {
	defer close(l.opened)
	return l.open()
}

// open is one attempt of start. If it fails, the runtime is released.
func (l *lease) open() error {
	runtime, err := l.join()
	if err != nil {
		return err
	}
	if l.exclusive, err = runtime.check(context.Background(), l.app); err == nil {
		err = runtime.serve(l.app)
	}
	if err != nil {
		l.leave()
		return err
	}
	l.runtime = runtime
	l.users.Store(1)
	l.watching.Go(l.watch)
	return nil
}

// join returns the runtime of the pool, or opens it. The caller must call leave.
func (l *lease) join() (*Runtime, error) {
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

// stop releases the lease of the configuration. Caddy calls it twice, by Stop and by Cleanup,
// and also when the start has failed. When the process ends it does nothing. Apps stop in
// random order, servers may still be serving, and the exit hook of runtime.go closes the
// store after all of them.
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

// withdraw ends the use of the configuration's task settings.
func (l *lease) withdraw() {
	if l.runtime != nil {
		l.runtime.withdraw(l.app)
	}
}

func (l *lease) release() {
	if l.users.Add(-1) == 0 {
		l.leave()
	}
}

func (l *lease) leave() {
	if _, err := runtimes.Delete(l.app.opener.Key()); err != nil {
		l.logger.Error("closing the store", zap.Error(err))
	}
}

// openTimeout is how long a call waits for a runtime that is being opened. Apps start in
// random order, so the server may listen before the store is open.
const openTimeout = 10 * time.Second

// acquire returns the runtime, which stays open until the returned function is called.
func (l *lease) acquire(ctx context.Context) (*Runtime, func(), error) {
	select {
	case <-l.opened:
	default:
		if l.joining.Load() {
			return nil, nil, ErrJoining
		}
		timer := time.NewTimer(openTimeout)
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
		users := l.users.Load()
		if users == 0 {
			// The request arrived after the last one of a stopped configuration
			// had ended: it joins the runtime by itself.
			runtime, err := l.join()
			return runtime, l.leave, err
		}
		if l.users.CompareAndSwap(users, users+1) {
			return l.runtime, l.release, nil
		}
	}
}

// Enter admits a call: it returns the runtime, which stays open until leave is called.
// It waits while the store is being opened. If the store has failed or the process ends,
// it refuses the call.
func (a *App) Enter(ctx context.Context) (runtime *Runtime, leave func(), refused *fault.Fault) {
	rt, release, err := a.InForce(ctx) // a closure over the result would move that to the heap
	if errors.Is(err, ErrJoining) {
		return nil, nil, errStoreUnavailable
	}
	if err != nil {
		a.logger.Error("the store is not available to a call", zap.Error(err))
		return nil, nil, errStoreUnavailable
	}
	rt.calls.Add(1)
	leave = func() {
		rt.calls.Add(-1)
		release()
	}
	if rt.open() != nil { // the store has logged why
		leave()
		return nil, nil, errStoreUnavailable
	}
	return rt, leave, nil
}

// errStoreUnavailable is the fault for callers if the store is not open.
var errStoreUnavailable = fault.New(fault.StoreUnavailable, "the gateway cannot take calls now; try again later").After(5 * time.Second)

// InForce returns the runtime like [App.Runtime], as soon as the settings of the
// configuration are in force. It returns [ErrNotLive] if they are not within openTimeout.
func (a *App) InForce(ctx context.Context) (runtime *Runtime, release func(), err error) {
	l := a.members.current.Load()
	runtime, release, err = l.acquire(ctx)
	if err != nil || l.done.Load() {
		return runtime, release, err
	}
	if err := l.await(ctx); err != nil {
		release()
		return nil, nil, err
	}
	return runtime, release, nil
}

// Runtime returns the runtime without counting a call, for health and status routes. The
// caller must call release.
func (a *App) Runtime(ctx context.Context) (runtime *Runtime, release func(), err error) {
	return a.members.current.Load().acquire(ctx)
}
