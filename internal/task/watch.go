package task

import "sync"

// watch wakes those who wait for a change of a task. The zero value is ready to
// use.
type watch struct {
	mu    sync.Mutex
	tasks map[string]chan struct{}
	count map[string]int
}

// begin returns a channel that is closed at the next change, and what ends the
// wait.
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

// tell wakes all who wait for a task.
func (w *watch) tell(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.tasks[id]; c != nil {
		close(c)
		delete(w.tasks, id)
		delete(w.count, id)
	}
}
