package task

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Options connect an [Engine] with the other packages.
type Options struct {
	// OnAudit is called with audit events when they are durable. Default: they are not reported.
	OnAudit func(audit.Event)

	// Logger logs what an operator must know. Default: nothing is logged.
	Logger *zap.Logger
}

// Open returns the engine of a store. It does nothing until [Engine.Serve] configures it.
func Open(store *storage.Store, l *ledger.Ledger, opts Options) *Engine {
	if opts.OnAudit == nil {
		opts.OnAudit = func(audit.Event) {}
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	e := &Engine{id: rand.Text(), store: store, ledger: l, opts: opts, log: opts.Logger, drivers: make(map[string]*driver)}
	e.transitions = transitions{e.id, store.Now, func() CallbackAddresses { return e.config.Load().Callbacks }}
	e.config.Store(&config{Config: Config{Unfinished: DefaultUnfinished, Kept: DefaultKept}})
	e.life, e.end = context.WithCancel(context.Background())
	return e
}

// Serve puts a configuration in force and resumes unfinished tasks. Backends that stay are driven
// on without a break. The tasks of backends that are removed wait.
func (e *Engine) Serve(c Config) error {
	if c.Unfinished == 0 {
		c.Unfinished = DefaultUnfinished
	}
	if c.Kept == 0 {
		c.Kept = DefaultKept
	}
	if c.Kept < SessionWindow {
		return fmt.Errorf("tasks are kept for at least %v, as long as their session ids are in use, this is %v", SessionWindow, c.Kept)
	}
	if c.Callbacks != nil && c.Client == nil {
		return errors.New("callbacks need a client that sends them")
	}
	next := &config{Config: c, backends: make(map[string]Backend, len(c.Backends))}
	for _, b := range c.Backends {
		if !isName(b.Name) {
			return fmt.Errorf("the name of a backend is 1 to 64 characters of a-z, 0-9, - and _, this is %q", b.Name)
		}
		if _, twice := next.backends[b.Name]; twice {
			return fmt.Errorf("there are two backends of the name %s", b.Name)
		}
		if f, is := b.Backend.(backends.Fetcher); is && f.OnlyBytes() && c.Keeper == nil {
			return fmt.Errorf("the backend %s gives bytes and no links: it needs copies of media to be kept", b.Name)
		}
		if b.PollsPerSecond == 0 {
			b.PollsPerSecond = DefaultPolls
		}
		if b.BusyTimeout == 0 {
			b.BusyTimeout = DefaultBusyTimeout
		}
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
			d.halt()
			delete(e.drivers, name)
		}
	}
	for name := range next.backends {
		if d := e.drivers[name]; d != nil {
			d.nudge()
			continue
		}
		d := newDriver(e, name)
		e.drivers[name] = d
		e.steps.Go(d.run)
	}
	if e.sender == nil {
		e.sender = newSender(e)
		e.steps.Go(e.sender.run)
	}
	e.sender.nudge()
	return nil
}

// isName reports whether text can name a backend: it is part of keys.
func isName(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return text != "" && len(text) <= 64
}

// Close begins nothing more and waits for work under way until ctx ends; then it aborts the rest,
// which the next engine resumes.
func (e *Engine) Close(ctx context.Context) {
	e.mu.Lock()
	e.closed = true
	for _, d := range e.drivers {
		d.halt()
	}
	if e.sender != nil {
		e.sender.halt()
	}
	e.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		e.steps.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	e.end()
	<-ended
}
