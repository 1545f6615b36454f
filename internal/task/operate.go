package task

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

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

// Abandoned reports whether tasks wait for a backend that is not configured any more. Only an
// operator can end them.
func (s BackendStatus) Abandoned() bool { return !s.Configured && s.Running+s.Waiting > 0 }

// Backends returns what all backends have to do, by name: those that are
// configured, and those that have ever had tasks.
func (e *Engine) Backends(ctx context.Context) (all []BackendStatus, err error) {
	err = e.view(ctx, func(r storage.Reader) error {
		all = nil
		names := slices.Collect(maps.Keys(e.config.Load().backends))
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
		return s, nil // it is not known since when it waits; the rest is
	}
	if err == nil && rec != nil {
		s.Oldest = time.UnixMilli(rec.Created)
	}
	return s, err
}

// Drain keeps new tasks from a backend until Enable: they wait. Tasks that the backend has go on.
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

// Retry has a task looked at now, for an operator who knows that its backend has recovered. A task
// that its backend has refused goes back into the queue. A task that waits for a slot goes on waiting.
func (e *Engine) Retry(ctx context.Context, actor, id string) (*Task, error) {
	rec, err := e.find(ctx, Anyone, id)
	if err != nil {
		return nil, err
	}
	after, _, err := e.move(ctx, transitionRetry, change{known: rec, owner: Anyone, actor: actor})
	switch {
	case err != nil:
		return nil, err
	case after == nil:
		return nil, ErrNotFound
	case !after.retryable():
		return nil, fault.New(fault.Conflict, "the task is not at a backend: it is %s", after.status())
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
	defer catchPanic(&err)
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	asked = true
	return asked, checker.Check(ctx)
}

// Unfinished returns at most so many unfinished tasks of an owner, oldest first; more reports that
// there are others.
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

// Cancel ends a task of an owner before it has results. A task whose job was not sent ends at once.
// Otherwise the backend must confirm that the job ends without a result; if the backend is not
// configured any more, an operator may cancel the task. In all other cases the task runs on and
// Cancel fails. Cancelling a cancelled task does nothing.
func (e *Engine) Cancel(ctx context.Context, owner Owner, id string) (*Task, error) {
	return e.CancelAs(ctx, "", owner, id)
}

// CancelAs is Cancel with an actor for the audit log: the operator or the id of a user.
func (e *Engine) CancelAs(ctx context.Context, actor string, owner Owner, id string) (*Task, error) {
	if !e.begin() {
		return nil, fault.New(fault.Overloaded, "the gateway is shutting down").After(waitLook)
	}
	defer e.steps.Done()
	noted, noting := e.noting.Load(id)
	rec, err := e.find(ctx, owner, id)
	if err == nil && noting && rec.Delivery == Sending {
		select {
		case <-noted.(chan struct{}):
			rec, err = e.find(ctx, owner, id)
		case <-ctx.Done():
		}
	}
	if err != nil {
		return nil, err
	}
	if rec.waiting() {
		rec, _, err = e.move(ctx, transitionWithdraw, change{known: rec, owner: owner, actor: actor, failure: cancelled})
		if err != nil {
			return nil, err
		}
		if rec == nil {
			return nil, ErrNotFound
		}
	}
	_, driven := e.backend(rec.Backend)
	abandoned := !driven && owner == Anyone
	if !rec.over() && rec.Copying == nil && (abandoned || rec.Delivery == Accepted && e.stop(rec) == nil) {
		tr := transitionCancel
		if abandoned {
			tr = transitionAbandon
		}
		// The job is stopped, whether the caller is still there or not.
		rec, _, err = e.move(context.WithoutCancel(ctx), tr, change{known: rec, owner: owner, actor: actor, failure: cancelled})
		if err != nil {
			return nil, err
		}
	}
	switch {
	case rec == nil:
		return nil, ErrNotFound
	case rec.Failure != nil && rec.Failure.Reason == backends.TaskCancelled:
		return rec.task(), nil
	case rec.over():
		return nil, fault.New(fault.TaskNotCancellable, "the task is over: %s", rec.State)
	case !driven:
		return nil, fault.New(fault.TaskNotCancellable, "the task is %s, and its backend is not configured any more: only an operator can cancel it", rec.status())
	case rec.Delivery == Sending, rec.Delivery == Unknown:
		return nil, fault.New(fault.TaskNotCancellable, "the task is being handed over; try again later").After(waitLook)
	}
	return nil, fault.New(fault.TaskNotCancellable, "the task is %s, and the generation service has not confirmed that it can be stopped", rec.status())
}

// stop asks a backend to end a job. If it does not, the job is polled soon.
func (e *Engine) stop(rec *record) error {
	d := e.driverOf(rec.Backend)
	b, found := e.backend(rec.Backend)
	if d == nil || !found {
		return errCannotCancel
	}
	err := d.cancel(b, *rec.Ref)
	if err != nil {
		if !errors.Is(err, errCannotCancel) {
			e.logBackendError(zap.InfoLevel, "a task is not cancelled", rec, err)
		}
		if wake := e.wake(e.life, rec.ID); wake != nil {
			e.log.Warn("a task is not asked for early", zap.String("task_id", rec.ID), zap.Error(wake))
		}
	}
	return err
}
