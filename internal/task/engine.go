package task

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/keymutex"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Backend is a configured backend.
type Backend struct {
	backends.Backend

	// Name is what tasks know it by, for as long as they live.
	Name string

	// MaxRunning is how many tasks may be there at once; the others wait here.
	// Zero: any number.
	MaxRunning int

	// PollsPerSecond bounds how often it is asked. Default: 50.
	PollsPerSecond int

	// BusyTimeout is how long the backend may refuse a task as busy, or with 403,
	// unless it refuses others, too, with 403 those of other users: then the task
	// fails without charge. Default: 30 minutes.
	BusyTimeout time.Duration
}

// DefaultBusyTimeout is how long a backend may refuse one task.
const DefaultBusyTimeout = 30 * time.Minute

// DefaultPolls is how often a backend is asked in a second unless it is
// configured otherwise.
const DefaultPolls = 50

// Config is what a configuration says. It is replaced as a whole by a reload and
// never changed.
type Config struct {
	Backends []Backend

	// Keeper copies results before success is recorded. Default: the links of
	// the backends are passed on.
	Keeper Keeper

	// Unfinished is how many tasks of one API key may be unfinished. Default: 100.
	Unfinished int

	// Kept is how long tasks are kept that are over. Default: 90 days.
	Kept time.Duration

	// Callbacks says where callbacks go. Default: nowhere.
	Callbacks Callbacks

	// Client sends callbacks. It dials only what may be dialled; redirects are
	// not followed, whatever it says. Needed where there are Callbacks.
	Client *http.Client
}

// The defaults of a Config.
const (
	DefaultUnfinished = 100
	DefaultKept       = 90 * 24 * time.Hour
)

// config is a Config, ready for use.
type config struct {
	Config
	backends map[string]Backend
}

// Engine drives the tasks of one store. Its zero value is not usable.
type Engine struct {
	id     string // drawn, so that claims of two engines over one store differ
	store  *storage.Store
	ledger *ledger.Ledger
	opts   Options
	log    *zap.Logger

	config atomic.Pointer[config]
	cache  cache
	watch  watch
	locks  keymutex.KeyedMutex // of idempotency keys and session ids
	noting sync.Map            // id of a task that a backend has accepted → chan struct{}, closed when that is noted

	undriven places // of what nobody drives

	life context.Context // of everything under way
	end  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	drivers map[string]*driver
	sender  *sender
	steps   sync.WaitGroup // everything under way
	figures figures
}

// Options are what an [Engine] is told by the rest of the house.
type Options struct {
	// Told is told of lines of the audit when they are durable. Default: nobody.
	Told func(audit.Event)

	// Logger is told of what an operator must know. Default: none.
	Logger *zap.Logger
}

// Open returns the engine of a store. It does nothing of its own until
// [Engine.Serve] tells it what is configured.
func Open(store *storage.Store, l *ledger.Ledger, opts Options) *Engine {
	if opts.Told == nil {
		opts.Told = func(audit.Event) {}
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	e := &Engine{id: rand.Text(), store: store, ledger: l, opts: opts, log: opts.Logger, drivers: make(map[string]*driver)}
	e.config.Store(&config{Config: Config{Unfinished: DefaultUnfinished, Kept: DefaultKept}})
	e.life, e.end = context.WithCancel(context.Background())
	return e
}

// Serve makes a configuration the one in force, and resumes what was left. A
// backend that it still has is driven on without a break, one that it has not
// any more is driven no further: its tasks wait.
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

// isName tells whether text can name a backend: it is part of keys.
func isName(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return text != "" && len(text) <= 64
}

// Close begins nothing more, waits until ctx ends for what is under way, and
// ends the rest: what that was is found again by the next engine.
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

// begin counts something as under way; false when the engine is closed. The
// caller ends it by e.steps.Done.
func (e *Engine) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.steps.Add(1)
	return true
}

// backend returns a backend that is configured.
func (e *Engine) backend(name string) (Backend, bool) {
	b, found := e.config.Load().backends[name]
	return b, found
}

// nudge has the driver of a backend look what there is to do.
func (e *Engine) nudge(backend string) {
	e.mu.Lock()
	d := e.drivers[backend]
	e.mu.Unlock()
	if d != nil {
		d.nudge()
	}
}

// nudgeBy has the driver of a backend look at a time at the latest.
func (e *Engine) nudgeBy(backend string, due int64) {
	e.mu.Lock()
	d := e.drivers[backend]
	e.mu.Unlock()
	if d != nil {
		d.nudgeBy(due)
	}
}

// driven are the names of the backends that are configured, in order.
func (e *Engine) driven() []string {
	return slices.Sorted(maps.Keys(e.config.Load().backends))
}

func (e *Engine) now() int64 { return milliseconds(e.store.Now()) }

// unknownTries is how often a change is run again whose outcome the store does
// not know. All changes here compare before they set, so that one which has
// happened is not done again.
const unknownTries = 8

// update changes tasks where no money moves.
func (e *Engine) update(ctx context.Context, fn func(storage.Txn) error) error {
	var err error
	for range unknownTries {
		err = e.store.Update(ctx, fn)
		if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrStopped) {
			break
		}
	}
	return fault.OfStore(err)
}

// view reads.
func (e *Engine) view(ctx context.Context, fn func(storage.Reader) error) error {
	return fault.OfStore(e.store.View(ctx, fn))
}

// durably runs a change until it is durable or the engine ends: what it notes is
// known here alone.
func (e *Engine) durably(what, id string, fn func(ctx context.Context) error) bool {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := fn(e.life)
		if err == nil {
			return true
		}
		if e.life.Err() != nil || e.store.Err() != nil || errors.Is(err, storage.ErrClosed) {
			return false
		}
		e.log.Error(what, zap.String("task_id", id), zap.Error(err))
		select {
		case <-time.After(pause):
		case <-e.life.Done():
			return false
		}
	}
}
