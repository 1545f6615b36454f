package task

import (
	"cmp"
	"context"
	"errors"
	"net/http"
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

	// CallbackAddresses says where callbacks go. Default: nowhere.
	Callbacks CallbackAddresses

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

	transitions transitions // carries them out

	undriven cursors // of backends without a driver

	life context.Context // of everything under way
	end  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	drivers map[string]*driver
	sender  *sender
	steps   sync.WaitGroup // everything under way
	figures figures
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

// driverOf returns the driver of a backend; nil: it is not configured.
func (e *Engine) driverOf(backend string) *driver {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.drivers[backend]
}

// nudge makes the driver of a backend look for work.
func (e *Engine) nudge(backend string) {
	if d := e.driverOf(backend); d != nil {
		d.nudge()
	}
}

// callbackDue has a callback of an API key sent when it is due.
func (e *Engine) callbackDue(user, key string, at int64) {
	e.mu.Lock()
	s := e.sender
	e.mu.Unlock()
	if s != nil {
		s.due(user, key, at)
	}
}

func (e *Engine) now() int64 { return milliseconds(e.store.Now()) }

// unknownTries is how often a change is run again whose outcome the store does not know. All
// changes here compare before they write, so that no change happens twice.
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

// move carries out a transition of a known task in a transaction of its own, and tells those who
// wait for a change of the task. It returns the task as it is then, nil if there is none, and
// whether the transition was carried out.
func (e *Engine) move(ctx context.Context, tr *transition, c change) (after *record, done bool, err error) {
	var was *record // before the first run
	var event *audit.Event
	run := func(t storage.Txn) (err error) {
		this := c
		if this.before, err = tasks.Reread(t, c.known); err != nil {
			return err
		}
		was = cmp.Or(was, this.before)
		done, err = e.transitions.apply(ctx, t, tr, &this)
		after, event = this.after, this.event
		return err
	}
	if tr.money() {
		err = e.ledger.Update(ctx, c.known.User, nil, func(t *ledger.Txn) error { return run(t) })
	} else {
		err = e.update(ctx, run)
	}
	if err != nil {
		return nil, false, err
	}
	if event != nil {
		e.opts.OnAudit(*event)
	}
	switch {
	case after == nil:
	case !after.over():
		e.changed(was, after)
	default:
		if done && !was.over() {
			e.figures.count(after)
		}
		e.cache.put(after)
		if !c.known.over() { // what is known may be old: an earlier run may have ended it
			e.ended(after)
		}
	}
	return after, done, nil
}

// note is move of what is known here alone, such as the answer of a backend: it tries until that
// is durable or the engine ends. It reports whether it is durable.
func (e *Engine) note(tr *transition, c change) (after *record, noted bool) {
	noted = e.durably("noting a task: "+tr.name, c.known.ID, func(ctx context.Context) (err error) {
		after, _, err = e.move(ctx, tr, c)
		return err
	})
	return after, noted
}

// view reads.
func (e *Engine) view(ctx context.Context, fn func(storage.Reader) error) error {
	return fault.OfStore(e.store.View(ctx, fn))
}

// durably runs a change until it is durable or the engine ends: only this process knows what it
// notes.
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

// ended wakes those who wait for the end of a task.
func (e *Engine) ended(rec *record) {
	e.watch.notify(rec.ID)
	e.nudge(rec.Backend)
	if rec.Event {
		e.callbackDue(rec.User, rec.Key, rec.Completed)
	}
}

// changed wakes those who wait for a change of a task, if it is shown differently than before.
func (e *Engine) changed(before, after *record) {
	if before.status() != after.status() || before.progress() != after.progress() {
		e.watch.notify(after.ID)
	}
	if d := e.driverOf(after.Backend); d != nil {
		d.nudgeBy(after.Due)
	}
}

// cursors are how far the tasks of backends have been read.
type cursors struct {
	mu  sync.Mutex
	key map[string][]byte // of the first that was not, by the name of the backend
}

// audited makes a change together with its audit event. fn may complete the event.
func (e *Engine) audited(ctx context.Context, event *audit.Event, fn func(t storage.Txn) (changed bool, err error)) error {
	var changed bool
	err := e.update(ctx, func(t storage.Txn) (err error) {
		if changed, err = fn(t); err != nil || !changed {
			return err
		}
		return audit.Record(ctx, t, e.store.Now(), event)
	})
	if err == nil && changed {
		e.opts.OnAudit(*event)
	}
	return err
}

// watch wakes those who wait for a change of a task. The zero value is ready to use.
type watch struct {
	mu    sync.Mutex
	tasks map[string]chan struct{}
	count map[string]int
}

// begin returns a channel that is closed at the next change, and a function that ends the wait.
func (w *watch) begin(id string) (changed <-chan struct{}, end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tasks == nil {
		w.tasks, w.count = make(map[string]chan struct{}), make(map[string]int)
	}
	c := w.tasks[id]
	if c == nil {
		c = make(chan struct{})
		w.tasks[id] = c
	}
	w.count[id]++
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.tasks[id] != c {
			return // it has changed
		}
		if w.count[id]--; w.count[id] == 0 {
			delete(w.tasks, id)
			delete(w.count, id)
		}
	}
}

// notify wakes all who wait for a task.
func (w *watch) notify(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.tasks[id]; c != nil {
		close(c)
		delete(w.tasks, id)
		delete(w.count, id)
	}
}

// cacheSize is how many tasks that are over the cache has at most. They do not
// change, and callers ask for them again and again.
const cacheSize = 8192

// cache has tasks that are over, in two halves: what is asked for goes into the
// young one, and when that is full it becomes the old one, whose tasks are
// dropped. The zero value is ready to use.
type cache struct {
	mu    sync.RWMutex
	young map[string]*cached
	old   map[string]*cached
}

// cached is a task with what is needed to give it out.
type cached struct {
	*Task
	completed int64 // Unix milliseconds
}

func (c *cache) put(rec *record) {
	one := &cached{rec.task(), rec.Completed}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(one)
}

// keep puts one into the young half. The mutex is held.
func (c *cache) keep(one *cached) {
	if c.young == nil {
		c.young = make(map[string]*cached)
	}
	if _, there := c.young[one.ID]; !there && len(c.young) >= cacheSize/2 {
		c.young, c.old = make(map[string]*cached), c.young
	}
	c.young[one.ID] = one
}

// get returns a task; nil when it is not here.
func (c *cache) get(id string) *cached {
	c.mu.RLock()
	one, old := c.young[id], c.old[id]
	c.mu.RUnlock()
	if one != nil || old == nil {
		return one
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.old[id] == old { // it may have been dropped meanwhile
		c.keep(old)
	}
	return old
}

func (c *cache) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.young, id)
	delete(c.old, id)
}
