package task

import (
	"time"
)

// pause keeps tasks from a busy backend for as long as it asks, else longer each
// time.
func (e *Engine) pause(backend string, asked time.Duration) {
	e.mu.Lock()
	d := e.drivers[backend]
	e.mu.Unlock()
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Now().Before(d.paused) {
		return // several were sent at once
	}
	wait := interval(0, d.busy)
	if asked > 0 { // never an instant: it would be asked without end
		wait = max(min(asked, mostPause), interval(0, 0))
	}
	d.busy++
	d.paused = time.Now().Add(wait)
}

// calm forgets how often a backend was busy: it has taken a task.
func (e *Engine) calm(backend string) {
	e.mu.Lock()
	d := e.drivers[backend]
	e.mu.Unlock()
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy != 0 {
		d.busy = 0
		d.nudge() // others have waited for that
	}
}

// paused tells whether a backend is too busy.
func (e *Engine) paused(backend string) bool {
	e.mu.Lock()
	d := e.drivers[backend]
	e.mu.Unlock()
	return d != nil && d.pausedFor() > 0
}

// wasBusy tells whether the backend has taken nothing since it was busy.
func (d *driver) wasBusy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy > 0
}

func (d *driver) pausedFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Until(d.paused)
}
