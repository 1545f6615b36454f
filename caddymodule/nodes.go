package caddymodule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

// ErrJoining means that the other gateways of the store have ended this one, and that it has not
// joined them again yet.
var ErrJoining = errors.New("the other gateways have ended this one; it joins them again")

// refuseLocal returns an error for settings with which the other gateways could not read the
// store: they would not have the master key.
func (a *App) refuseLocal() error {
	if len(a.Secrets) == 0 {
		return errors.New("a store that several gateways share needs the master key in the configuration: secret {env.MODELGATE_SECRET}")
	}
	return nil
}

// node describes this process to the other gateways of a shared store.
func (a *App) node() storage.Node {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return storage.Node{Name: fmt.Sprintf("%s/%d", host, os.Getpid()), Version: ReadBuild().Version, Config: a.fingerprint()}
}

// fingerprint returns a short hash of the options of the app, by which operators compare gateways.
// The master key is a part of the options, so the hash reveals nothing about them.
func (a *App) fingerprint() string {
	options, err := json.Marshal(a)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(options)
	return hex.EncodeToString(sum[:6])
}

// follow connects the services to the other gateways of a shared store.
func (rt *Runtime) follow() {
	rt.Store.Follow(storage.Follower{
		OnTopics: func(ctx context.Context, topics []string) error {
			return errors.Join(rt.Directory.OnTopics(ctx, topics), rt.Tasks.OnTopics(ctx, topics))
		},
		OnEnded: func(ctx context.Context, epoch int64) error {
			return errors.Join(rt.Ledger.EndEpoch(ctx, epoch), rt.Objects.EndEpoch(ctx, epoch), rt.Tasks.EndEpoch(ctx, epoch), rt.Rates.EndEpoch(ctx, epoch))
		},
	})
}

// joinPause is the time between two attempts to join the other gateways again.
const joinPause = 250 * time.Millisecond

// rejoin tries to open the store until it is open or the configuration stops.
func (l *lease) rejoin() {
	last := ""
	for {
		err := l.open()
		if err == nil {
			l.joining.Store(false)
			close(l.opened)
			return
		}
		if text := err.Error(); text != last {
			last = text
			l.logger.Warn("this gateway cannot join the others yet", zap.Error(err))
		}
		timer := time.NewTimer(joinPause)
		select {
		case <-l.stopped:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// membership replaces the lease of an app when the other gateways have ended its epoch. So the
// process joins them anew, without the old runtime and its memory.
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
		next.joining.Store(true)
		m.current.Store(next)
		fenced.end(storage.ErrFenced) // open calls end, because they cannot be charged
		l.withdraw()
		l.stop()
		select {
		case <-m.stop:
			return
		case <-fenced.closed:
		}
		next.watching.Go(next.rejoin)
	}
}
