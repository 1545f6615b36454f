package task

import (
	"sync"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

// cacheSize is the maximum number of finished tasks in the cache. They do not change, and callers
// query them repeatedly.
const cacheSize = 8192

// cache has finished tasks in two generations. A task that is read moves to the young generation.
// When that is full, it becomes the old generation and replaces it. The zero value is ready to use.
type cache struct {
	mu    sync.RWMutex
	young map[string]*cached
	old   map[string]*cached
}

// cached is a task with the time from which its retention counts.
type cached struct {
	*record.Task
	completed int64 // Unix milliseconds
	hidden    bool  // from its API key
}

func (c *cache) put(rec *record.Record) {
	one := &cached{rec.Task(), rec.Completed, rec.Deleted != 0}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(one)
}

// keep puts a task into the young generation. c.mu is held.
func (c *cache) keep(one *cached) {
	if c.young == nil {
		c.young = make(map[string]*cached)
	}
	if _, exists := c.young[one.ID]; !exists && len(c.young) >= cacheSize/2 {
		c.young, c.old = make(map[string]*cached), c.young
	}
	c.young[one.ID] = one
}

// get returns a task, or nil.
func (c *cache) get(id string) *cached {
	c.mu.RLock()
	one, old := c.young[id], c.old[id]
	c.mu.RUnlock()
	if one != nil || old == nil {
		return one
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.old[id] == old { // a concurrent call may have dropped the task
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

// watch notifies callers that wait for a change of a task. The zero value is ready to use.
type watch struct {
	mu    sync.Mutex
	tasks map[string]*watched
}

type watched struct {
	changed chan struct{}
	waiting int
}

// begin returns a channel that is closed at the next change, and a function that ends the wait.
func (w *watch) begin(id string) (changed <-chan struct{}, end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tasks == nil {
		w.tasks = make(map[string]*watched)
	}
	one := w.tasks[id]
	if one == nil {
		one = &watched{changed: make(chan struct{})}
		w.tasks[id] = one
	}
	one.waiting++
	return one.changed, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if one.waiting--; one.waiting == 0 && w.tasks[id] == one {
			delete(w.tasks, id)
		}
	}
}

// notify wakes all callers that wait for a task.
func (w *watch) notify(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.tasks[id]; one != nil {
		close(one.changed)
		delete(w.tasks, id)
	}
}
