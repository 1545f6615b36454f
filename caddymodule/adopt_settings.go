package caddymodule

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// This file applies the settings of a configuration to its store when the configuration is
// live. Then Caddy has made it the active one and can no longer roll it back. A started
// configuration may still fail, for example because a port is busy. Then the previous
// configuration continues with the same store. Caddy has no event for a configuration that
// becomes live. It emits "started" earlier, and stops the apps of the previous configuration
// later, in random order. So the runtime polls the active configuration: at each call until
// it has adopted it, and in the background with growing pauses.

// adoption is the state of applying the settings of a configuration to its runtime.
type adoption struct {
	exclusive bool          // the settings differ in ways that calls depend on; written before the lease is opened
	done      atomic.Bool   // the runtime has the settings
	over      chan struct{} // closed when done is set
	failed    atomic.Bool   // the last attempt has failed; the watcher makes the next one

	watching sync.WaitGroup
	stopping sync.Once
	stopped  chan struct{} // closed when the configuration stops
}

func newAdoption() adoption {
	return adoption{over: make(chan struct{}), stopped: make(chan struct{})}
}

const (
	// firstCheck is the pause before the first check of the active configuration. It
	// doubles up to maxCheckPause.
	firstCheck    = 10 * time.Millisecond
	maxCheckPause = time.Second

	// maxRetryPause bounds the pause after a failed attempt, which begins at maxCheckPause
	// and doubles.
	maxRetryPause = time.Minute
)

// watch adopts the configuration as soon as it is live. It blocks until then, or until
// the configuration stops.
func (l *lease) watch() {
	for pause := firstCheck; ; {
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
			pause = min(max(2*pause, maxCheckPause), maxRetryPause)
		} else {
			pause = min(2*pause, maxCheckPause)
		}
	}
}

// stopWatching ends watch and waits for it.
func (l *lease) stopWatching() {
	l.stopping.Do(func() { close(l.stopped) })
	l.watching.Wait()
}

// adopt applies the settings of the configuration once it is live. It logs errors.
func (l *lease) adopt() {
	l.runtime.adopting.Lock()
	defer l.runtime.adopting.Unlock()
	if l.done.Load() {
		return
	}
	// Under the lock, so that a replaced configuration does not overwrite the settings
	// of its successor.
	if app, err := Active(); err != nil || app != l.app {
		return
	}
	if err := l.runtime.adopt(context.Background(), l.app); err != nil {
		l.failed.Store(true)
		l.logger.Error("the settings of the live configuration were not applied to its store", zap.Error(err), zap.Bool("refuses_calls", l.exclusive))
		return
	}
	l.done.Store(true)
	close(l.over)
}

// await blocks until the runtime has the settings that a call depends on, at most for
// openTimeout. Else it returns [ErrNotLive].
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
	timer := time.NewTimer(openTimeout)
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

// ErrNotLive means that the settings of the configuration were not applied to its store.
var ErrNotLive = errors.New("the configuration is not in force: it changes the currency or the master keys of the store, and is not live or could not be adopted")

// check returns an error if the runtime cannot adopt a configuration. exclusive reports
// whether calls must wait for the adoption, because the currency or the master keys
// change.
func (rt *Runtime) check(ctx context.Context, a *App) (exclusive bool, err error) {
	recorded, err := rt.Ledger.CheckCurrency(ctx, a.Currency)
	if err != nil {
		return false, err
	}
	changed, err := rt.checkKeys(ctx, a.Secrets, a.opener)
	return !recorded || changed, err
}

// adopt applies the settings of the live configuration to the store. If the process ends in
// the middle, both this and the previous configuration can open the store. Money moves and
// secrets are sealed only after adopt has returned.
func (rt *Runtime) adopt(ctx context.Context, a *App) error {
	if err := rt.Ledger.UseCurrency(ctx, a.Currency); err != nil {
		return err
	}
	if err := rt.useKeys(ctx, a.Secrets, a.opener); err != nil {
		return err
	}
	rt.configure(a)
	rt.Store.Adopt(a.opener)
	rt.Store.SetConfig(a.fingerprint())
	rt.adopted.Store(a)
	if a.console.served {
		rt.announceSetup(ctx)
	}
	return nil
}

// configure sets the settings of the directory and the mail server.
func (rt *Runtime) configure(a *App) {
	rt.Directory.SetTOTPSkew(*a.Verification.TOTPSkew)
	rt.Directory.SetCallbackCheck(a.Callback.check)
	rt.Mail.Use(a.Mail.server)
}
