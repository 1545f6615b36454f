package caddymodule

import (
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

// ErrStandby means that another process has the store open.
var ErrStandby = storage.ErrStandby

// refuseLocal returns an error for settings with which the next machine could not take over
// the store: it would not have the master key.
func (a *App) refuseLocal() error {
	if len(a.Secrets) == 0 {
		return errors.New("a store that several gateways share needs the master key in the configuration: secret {env.MODELGATE_SECRET}")
	}
	return nil
}

// standbyPause is the time between two attempts of a standby to open its store.
const standbyPause = 250 * time.Millisecond

// failurePause is that time after an attempt that failed.
const failurePause = 2 * time.Second

// stand tries to open the store until it is open or the configuration stops.
func (l *lease) stand() {
	last := ""
	for pause := standbyPause; ; {
		timer := time.NewTimer(pause)
		select {
		case <-l.stopped:
			timer.Stop()
			return
		case <-timer.C:
		}
		err := l.open()
		if err == nil {
			l.standby.Store(false)
			close(l.opened)
			return
		}
		if pause = standbyPause; !errors.Is(err, storage.ErrStandby) {
			pause = failurePause
		}
		if text := err.Error(); text != last {
			last = text
			l.logger.Warn("this gateway is a standby", zap.Error(err))
		}
	}
}

// membership replaces the lease of an app when another process has taken over its store, so
// that the app becomes a standby.
type membership struct {
	current atomic.Pointer[lease]
	stop    chan struct{}
	ended   chan struct{} // closed when follow has returned
}

// follow runs until stop is closed.
func (m *membership) follow(a *App) {
	defer close(m.ended)
	for {
		l := m.current.Load()
		select {
		case <-m.stop:
			return
		case <-l.opened:
		}
		if l.runtime == nil {
			return
		}
		fenced := l.runtime
		select {
		case <-m.stop:
			return
		case <-fenced.Store.Failed():
		}
		if !errors.Is(fenced.Store.Err(), storage.ErrFenced) {
			return
		}
		next := newLease(a)
		next.standby.Store(true)
		m.current.Store(next)
		fenced.end(storage.ErrFenced) // open calls end: nobody would be charged for them
		l.withdraw()
		l.stop()
		select {
		case <-m.stop:
			return
		case <-fenced.closed:
		}
		next.watching.Go(next.stand)
	}
}
