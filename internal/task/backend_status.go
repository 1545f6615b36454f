package task

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// BackendStatus is the current load of a backend.
type BackendStatus struct {
	Name       string    `json:"name"`
	Configured bool      `json:"configured"`        // false: its tasks wait until it is configured again
	Drained    bool      `json:"drained,omitempty"` // it gets no new tasks
	Running    int64     `json:"running"`
	Waiting    int64     `json:"waiting"`
	Deferred   int64     `json:"deferred,omitempty"` // part of Waiting: tasks that are sent again later, because the backend refused them or others of their users
	MaxRunning int       `json:"max_running,omitempty"`
	Oldest     time.Time `json:"oldest,omitzero"` // when the longest waiting task was submitted
	Busy       bool      `json:"busy,omitempty"`  // no task is sent until a pause has ended
}

// Abandoned reports whether tasks wait for a backend that is no longer configured. Only an
// operator can end them.
func (s BackendStatus) Abandoned() bool { return !s.Configured && s.Running+s.Waiting > 0 }

// Backends returns the status of each backend that is configured, drained or has unfinished tasks,
// sorted by name.
func (e *Engine) Backends(ctx context.Context) (all []BackendStatus, err error) {
	err = e.store.View(ctx, func(r storage.Reader) error {
		all = nil
		names := slices.Collect(maps.Keys(e.config.Load().backends))
		lo, hi := storage.Below(record.LoadPrefix)
		err := r.Scan(lo, hi, func(key, _ []byte) bool {
			names = append(names, string(key[len(lo):]))
			return true
		})
		if err != nil {
			return err
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			s, err := e.backendStatus(r, name)
			if err != nil {
				return err
			}
			if s.Configured || s.Abandoned() || s.Drained {
				all = append(all, s)
			}
		}
		return nil
	})
	return all, err
}

func (e *Engine) backendStatus(r storage.Reader, name string) (BackendStatus, error) {
	l, err := record.ReadLoad(r, name)
	if err != nil {
		return BackendStatus{}, err
	}
	b, found := e.backend(name)
	s := BackendStatus{
		Name: name, Configured: found, Drained: l.Drained, Running: l.Running, Waiting: l.Waiting, Deferred: l.Deferred,
		MaxRunning: b.MaxRunning,
	}
	if d := e.driverOf(name); d != nil {
		s.Busy = d.pausedFor() > 0
	}
	for rec, err := range record.Tasks.Scan(r, record.Queue.Under(name)) {
		switch {
		case err == nil:
			s.Oldest = time.UnixMilli(rec.Created)
		case !errors.Is(err, storage.ErrUnreadable): // an unreadable task leaves Oldest empty
			return s, err
		}
		break
	}
	return s, nil
}

// Drain stops the sending of tasks to a backend until Enable: they wait. Running tasks continue.
func (e *Engine) Drain(ctx context.Context, actor, backend string) error {
	return e.setDrained(ctx, actor, backend, true, "backend.drain")
}

// Enable ends Drain.
func (e *Engine) Enable(ctx context.Context, actor, backend string) error {
	return e.setDrained(ctx, actor, backend, false, "backend.enable")
}

func (e *Engine) setDrained(ctx context.Context, actor, backend string, drained bool, action string) error {
	defer e.nudgeDriver(backend)
	return e.store.Audited(ctx, &audit.Event{Actor: actor, Action: action, Detail: backend}, func(t storage.Txn) (bool, error) {
		l, err := record.ReadLoad(t, backend)
		if err != nil {
			return false, err
		}
		if _, found := e.backend(backend); !found && l == (record.Load{}) {
			return false, fault.At(fault.NotFound, "backend", "there is no backend %q", backend)
		}
		if l.Drained == drained {
			return false, nil
		}
		l.Drained = drained
		return true, l.Write(t, backend)
	})
}

// Check checks whether a backend would accept a job, which costs nothing. checked is false if the
// adapter has no such check.
func (e *Engine) Check(ctx context.Context, backend string) (checked bool, err error) {
	b, found := e.backend(backend)
	if !found {
		return false, fault.At(fault.NotFound, "backend", "there is no backend %q configured", backend)
	}
	checker, can := b.Backend.(backends.Checker)
	if !can {
		return false, nil
	}
	done, err := e.begin()
	if err != nil {
		return false, err
	}
	defer done()
	defer catchPanic(&err)
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	checked = true
	return checked, checker.Check(ctx)
}
