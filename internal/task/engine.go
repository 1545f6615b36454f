package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/keymutex"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Engine drives the tasks of one store. Its zero value is not usable.
type Engine struct {
	core
	callback.Service

	locks keymutex.KeyedMutex // of idempotency keys and session ids
	end   context.CancelFunc  // of everything under way

	mu      sync.Mutex
	closed  bool
	drivers map[string]*driver

	sweeping  sync.Mutex
	sweepFrom map[string][]byte // by backend without a driver: the first key that the last sweep did not process
}

// begin registers an operation, which the caller ends by calling done. It returns an error if the
// engine is closed.
func (e *Engine) begin() (done func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fault.New(fault.Overloaded, "the gateway is shutting down").After(5 * time.Second)
	}
	e.store.Steps.Add(1)
	return e.store.Steps.Done, nil
}

// driverOf returns the driver of a backend; nil: it is not configured.
func (e *Engine) driverOf(backend string) *driver {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drivers[backend]
}

// Options connect an [Engine] with the other packages.
type Options struct {
	// OnAudit is called with each audit event after it is durable. May be nil.
	OnAudit func(audit.Event)

	// Logger may be nil.
	Logger *zap.Logger
}

// Open returns the engine of a store. It drives no tasks until [Engine.Serve] configures it.
func Open(store *storage.Store, l *ledger.Ledger, opts Options) *Engine {
	if opts.OnAudit == nil {
		opts.OnAudit = func(audit.Event) {}
	}
	e := &Engine{
		core:    core{ledger: l, polls: limit.NewRateLimiter()},
		drivers: make(map[string]*driver), sweepFrom: make(map[string][]byte),
	}
	e.store = &record.Store{Store: store, Engine: record.OwnerOf(store), Log: cmp.Or(opts.Logger, zap.NewNop()), OnAudit: opts.OnAudit}
	e.store.Life, e.end = context.WithCancel(context.Background())
	e.sender = callback.NewSender(e.store)
	e.Service = callback.NewService(e.sender)
	e.writer = &transition.Writer{Engine: e.store.Engine, Clock: store.Now, HasCallback: e.sender.HasAddress}
	e.nudgeDriverBy = func(backend string, at int64) {
		if d := e.driverOf(backend); d != nil {
			d.nudgeBy(at)
		}
	}
	e.config.Store(&config{Config: Config{Unfinished: DefaultUnfinished, Kept: DefaultKept}})
	return e
}

// Serve applies a configuration and resumes unfinished tasks. Backends in both configurations are
// driven without interruption. The tasks of removed backends wait.
func (e *Engine) Serve(c Config) error {
	c.Unfinished, c.Kept = cmp.Or(c.Unfinished, DefaultUnfinished), cmp.Or(c.Kept, DefaultKept)
	if c.Kept < transition.SessionWindow {
		return fmt.Errorf("retention of tasks: %v is shorter than the use of session ids; allowed: %v or more", c.Kept, transition.SessionWindow)
	}
	if c.Callbacks != nil && c.Client == nil {
		return errors.New("callbacks need an HTTP client")
	}
	next := &config{Config: c, backends: make(map[string]Backend, len(c.Backends))}
	for _, b := range c.Backends {
		if !IsBackendName(b.Name) {
			return fmt.Errorf("name of a backend: %q; allowed: 1 to 64 characters of a-z, 0-9, - and _", b.Name)
		}
		if _, twice := next.backends[b.Name]; twice {
			return fmt.Errorf("backend %s is configured twice", b.Name)
		}
		if f, ok := b.Backend.(backends.Fetcher); ok && f.OnlyBytes() && c.Keeper == nil {
			return fmt.Errorf("backend %s returns results without URLs: media must be copied", b.Name)
		}
		b.PollsPerSecond, b.BusyTimeout = cmp.Or(b.PollsPerSecond, defaultPolls), cmp.Or(b.BusyTimeout, defaultBusyTimeout)
		next.backends[b.Name] = b
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errors.New("the task engine is closed")
	}
	e.config.Store(next)
	for name, d := range e.drivers {
		if _, stays := next.backends[name]; !stays {
			d.Halt()
			delete(e.drivers, name)
		}
	}
	for name := range next.backends {
		if d := e.drivers[name]; d != nil {
			d.Nudge()
			continue
		}
		d := newDriver(&e.core, name)
		e.drivers[name] = d
		e.store.Steps.Go(func() { d.Run(d.runOnce) })
	}
	e.sender.Serve(c.Callbacks, c.Client)
	return nil
}

// Close starts no new work and waits for running work until ctx ends. Then it aborts the rest,
// which the next engine resumes.
func (e *Engine) Close(ctx context.Context) {
	e.mu.Lock()
	e.closed = true
	for _, d := range e.drivers {
		d.Halt()
	}
	e.sender.Halt()
	e.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		e.store.Steps.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	e.end()
	<-ended
}
