package task

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// BackendStatus is what a backend has to do at this moment.
type BackendStatus struct {
	Name       string    `json:"name"`
	Configured bool      `json:"configured"`        // false: its tasks wait until it is again
	Drained    bool      `json:"drained,omitempty"` // it gets no new tasks
	Running    int64     `json:"running"`
	Waiting    int64     `json:"waiting"`
	Deferred   int64     `json:"deferred,omitempty"` // of Waiting, those that are tried again later: it has refused them, or others of their users
	MaxRunning int       `json:"max_running,omitempty"`
	Oldest     time.Time `json:"oldest,omitzero"` // when the one was submitted that has waited longest
	Busy       bool      `json:"busy,omitempty"`  // it has asked for a pause
}

// Abandoned tells whether tasks wait for a backend that is not configured any
// more. Only an operator can help them.
func (s BackendStatus) Abandoned() bool { return !s.Configured && s.Running+s.Waiting > 0 }

// Backends returns what all backends have to do, by name: those that are
// configured, and those that have ever had tasks.
func (e *Engine) Backends(ctx context.Context) (all []BackendStatus, err error) {
	err = e.view(ctx, func(r storage.Reader) error {
		all = nil
		names := e.driven()
		lo, hi := storage.Below(loadPrefix)
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
	l, err := readLoad(r, name)
	if err != nil {
		return BackendStatus{}, err
	}
	b, found := e.backend(name)
	s := BackendStatus{
		Name: name, Configured: found, Drained: l.Drained, Running: l.Running, Waiting: l.Waiting, Deferred: l.Deferred,
		MaxRunning: b.MaxRunning, Busy: e.paused(name),
	}
	keys, err := queue.Under(name).Keys(r, 1)
	if err != nil || len(keys) == 0 {
		return s, err
	}
	rec, err := readTask(r, lastID(keys[0]))
	if errors.Is(err, storage.ErrUnreadable) {
		return s, nil // since when it waits nobody knows; the rest is known
	}
	if err == nil && rec != nil {
		s.Oldest = time.UnixMilli(rec.Created)
	}
	return s, err
}

// Drain keeps new tasks from a backend, until Enable: they wait. Those that it
// has run on.
func (e *Engine) Drain(ctx context.Context, actor, backend string) error {
	return e.setDrained(ctx, actor, backend, true, "backend.drain")
}

// Enable gives a backend tasks again.
func (e *Engine) Enable(ctx context.Context, actor, backend string) error {
	return e.setDrained(ctx, actor, backend, false, "backend.enable")
}

func (e *Engine) setDrained(ctx context.Context, actor, backend string, drained bool, action string) error {
	defer e.nudge(backend)
	return e.audited(ctx, &audit.Event{Actor: actor, Action: action, Detail: backend}, func(t storage.Txn) (bool, error) {
		l, err := readLoad(t, backend)
		if err != nil {
			return false, err
		}
		if _, found := e.backend(backend); !found && l == (load{}) {
			return false, fault.At(fault.NotFound, "backend", "there is no backend %q", backend)
		}
		if l.Drained == drained {
			return false, nil
		}
		l.Drained = drained
		return true, l.write(t, backend)
	})
}

// Retry has a task looked at now, for an operator who knows that its backend has
// recovered. A task that its backend has refused goes back into the queue. What waits
// for a slot goes on waiting.
func (e *Engine) Retry(ctx context.Context, actor, id string) (*Task, error) {
	var after *record
	event := audit.Event{Actor: actor, Action: "task.retry", Detail: id}
	err := e.audited(ctx, &event, func(t storage.Txn) (bool, error) {
		rec, err := e.owned(t, Anyone, id)
		if err != nil {
			return false, err
		}
		event.User, event.Key = rec.User, rec.Key
		if !rec.running() && !rec.deferred() {
			return false, fault.New(fault.Conflict, "the task is not at a backend: it is %s", rec.status())
		}
		changed := false
		after, err = change(t, id, func(r *record) bool {
			now := e.now()
			if now < r.Lease { // somebody looks at it at this moment
				changed, r.Woken = !r.Woken, true
				return changed
			}
			r.Failing, r.Due = 0, now
			if r.deferred() {
				r.Resume = now
			}
			changed = true
			return true
		})
		return changed, err
	})
	if err != nil {
		return nil, err
	}
	e.nudge(after.Backend)
	return after.task(), nil
}

// Check asks a backend whether it would take a job, which costs nothing. It is
// not asked where its adapter has no such question.
func (e *Engine) Check(ctx context.Context, backend string) (asked bool, err error) {
	b, found := e.backend(backend)
	if !found {
		return false, fault.At(fault.NotFound, "backend", "there is no backend %q configured", backend)
	}
	checker, can := b.Backend.(backends.Checker)
	if !can {
		return false, nil
	}
	if !e.begin() {
		return false, fault.New(fault.Overloaded, "the gateway is shutting down").After(waitLook)
	}
	defer e.steps.Done()
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	asked = true
	return asked, checker.Check(ctx)
}

// Unfinished returns tasks of an owner that are not over, oldest first; more
// tells that there are others beside so many.
func (e *Engine) Unfinished(ctx context.Context, owner Owner, most int) (list []*Task, more bool, err error) {
	err = e.view(ctx, func(r storage.Reader) error {
		list, more = []*Task{}, false
		for rec, err := range tasks.Scan(r, due.Under()) {
			if err != nil {
				return err
			}
			if rec.over() || !owner.owns(rec.Key, rec.User) {
				continue
			}
			if more = len(list) == most; more {
				return nil
			}
			list = append(list, rec.task())
		}
		return nil
	})
	slices.SortFunc(list, func(a, b *Task) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list, more, err
}

// audited changes something together with the line of the audit about it, to
// which fn may add what it finds.
func (e *Engine) audited(ctx context.Context, event *audit.Event, fn func(t storage.Txn) (changed bool, err error)) error {
	var changed bool
	err := e.update(ctx, func(t storage.Txn) (err error) {
		if changed, err = fn(t); err != nil || !changed {
			return err
		}
		return audit.Record(ctx, t, e.store.Now(), event)
	})
	if err == nil && changed {
		e.opts.Told(*event)
	}
	return err
}
