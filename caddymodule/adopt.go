package caddymodule

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// A configuration changes the settings of its store when it is live: when Caddy has
// made it the active one and cannot roll it back any more. A configuration that was
// started may still fail, for instance because a port is busy; then the one before it
// goes on with the same store. Caddy has no event for a configuration that becomes
// live: "started" comes before that, and the apps of the configuration before are
// stopped after it in random order, the servers after a grace period. So the runtime
// polls the active configuration: at each call until it has adopted it, and with growing
// pauses, for changes that need no call.

// adoption is how far a runtime has taken over the settings of a configuration.
type adoption struct {
	exclusive bool          // the settings differ in ways that calls depend on; written before the lease is opened
	done      atomic.Bool   // the runtime has taken them over
	over      chan struct{} // closed when it has
	failed    atomic.Bool   // the last attempt has failed; the watcher makes the next one

	watching sync.WaitGroup
	stopping sync.Once
	stopped  chan struct{} // closed when the configuration stops
}

func newAdoption() adoption {
	return adoption{over: make(chan struct{}), stopped: make(chan struct{})}
}

const (
	// firstLook is how long after its start a configuration is looked at first. The
	// pause doubles up to liveAtMost.
	firstLook  = 10 * time.Millisecond
	liveAtMost = time.Second

	// adoptAtMost bounds the pause after a failed attempt, which begins at liveAtMost
	// and doubles.
	adoptAtMost = time.Minute
)

// watch has the runtime adopt the configuration as soon as it is live. It returns when
// that is done or the configuration stops.
func (l *lease) watch() {
	for pause := firstLook; ; {
		timer := time.NewTimer(pause)
		select {
		case <-l.stopped:
			timer.Stop()
			return
		case <-l.over:
			timer.Stop()
			return
		case <-timer.C:
		}
		if l.adopt(); l.failed.Load() {
			pause = min(max(2*pause, liveAtMost), adoptAtMost)
		} else {
			pause = min(2*pause, liveAtMost)
		}
	}
}

// stopWatching ends watch and waits for it.
func (l *lease) stopWatching() {
	l.stopping.Do(func() { close(l.stopped) })
	l.watching.Wait()
}

// adopt has the runtime adopt the configuration if it is live, once. It logs a failure.
func (l *lease) adopt() {
	l.runtime.adopting.Lock()
	defer l.runtime.adopting.Unlock()
	if l.done.Load() {
		return
	}
	// Under the lock, so that a configuration which was replaced meanwhile does not
	// overwrite the settings of the next one.
	if app, err := Active(); err != nil || app != l.app {
		return
	}
	if err := l.runtime.adopt(context.Background(), l.app); err != nil {
		l.failed.Store(true)
		l.logger.Error("the live configuration is not in force at its store", zap.Error(err), zap.Bool("refuses_calls", l.exclusive))
		return
	}
	l.done.Store(true)
	close(l.over)
}

// await returns when a call may be served by the configuration: at once if the runtime
// has the settings that the call depends on, else when the runtime has adopted them.
func (l *lease) await(ctx context.Context) error {
	if !l.failed.Load() {
		l.adopt()
	}
	switch {
	case !l.exclusive:
		return nil
	case l.failed.Load() && !l.done.Load():
		return ErrNotLive
	}
	timer := time.NewTimer(openPatience)
	defer timer.Stop()
	select {
	case <-l.over:
		return nil
	case <-l.stopped:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ErrNotLive
}

// ErrNotLive says that the configuration is not in force at its store.
var ErrNotLive = errors.New("the configuration is not in force: it changes the currency or the master keys of the store, and is not live or could not be adopted")

// check returns an error if the runtime cannot adopt a configuration. It reports
// whether calls must wait until it has: because the currency in which they are
// charged or the keys by which they seal are not in force yet.
func (rt *Runtime) check(ctx context.Context, a *App) (exclusive bool, err error) {
	recorded, err := rt.Ledger.CheckCurrency(ctx, a.Currency)
	if err != nil {
		return false, err
	}
	changed, err := rt.checkKeys(ctx, a.Secrets, a.opener)
	return !recorded || changed, err
}

// adopt puts the settings of the live configuration in force at the store. If the
// process ends in the middle, the store opens by this configuration and by the one
// before it: money moves and secrets are sealed only after adopt has returned.
func (rt *Runtime) adopt(ctx context.Context, a *App) error {
	if err := rt.Ledger.UseCurrency(ctx, a.Currency); err != nil {
		return err
	}
	if err := rt.useKeys(ctx, a.Secrets, a.opener); err != nil {
		return err
	}
	rt.configure(a)
	rt.adopted.Store(a)
	if a.console {
		rt.announceSetup(ctx)
	}
	return nil
}

// configure sets what the directory takes from a configuration.
func (rt *Runtime) configure(a *App) {
	rt.Directory.SetTOTPSkew(*a.Verification.TOTPSkew)
	rt.Directory.SetCallbackCheck(a.Callback.check)
}
