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
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
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
		case !errors.Is(err, storage.ErrUnreadable): // else it is not known since when it waits; the rest is
			return s, err
		}
		break
	}
	return s, nil
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

// Retry has a task looked at now, for an operator who knows that its backend has recovered. A task
// that its backend has refused goes back into the queue. A task that waits for a slot goes on waiting.
func (e *Engine) Retry(ctx context.Context, actor, id string) (*record.Task, error) {
	rec, err := e.find(ctx, record.Anyone, id)
	if err != nil {
		return nil, err
	}
	after, _, err := e.apply(ctx, transition.Retry, transition.Change{Known: rec, Owner: record.Anyone, Actor: actor})
	switch {
	case err != nil:
		return nil, err
	case after == nil:
		return nil, ErrNotFound
	case !after.Retryable():
		return nil, fault.New(fault.Conflict, "the task is not at a backend: it is %s", after.Status())
	}
	e.nudgeDriver(after.Backend)
	return after.Task(), nil
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
	done, err := e.begin()
	if err != nil {
		return false, err
	}
	defer done()
	defer catchPanic(&err)
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	asked = true
	return asked, checker.Check(ctx)
}

// Unfinished returns at most so many unfinished tasks of an owner, oldest first; more reports that
// there are others.
func (e *Engine) Unfinished(ctx context.Context, owner record.Owner, most int) (list []*record.Task, more bool, err error) {
	err = e.store.View(ctx, func(r storage.Reader) error {
		list, more = []*record.Task{}, false
		for rec, err := range record.Tasks.Scan(r, record.Due.Under()) {
			if err != nil {
				return err
			}
			if rec.Over() || !owner.Owns(rec.Key, rec.User) {
				continue
			}
			if more = len(list) == most; more {
				return nil
			}
			list = append(list, rec.Task())
		}
		return nil
	})
	slices.SortFunc(list, func(a, b *record.Task) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list, more, err
}

// Cancel ends a task of an owner before it has results. A task whose job was not sent ends at once.
// Otherwise the backend must confirm that the job ends without a result; if the backend is not
// configured any more, an operator may cancel the task. In all other cases the task runs on and
// Cancel fails. Cancelling a cancelled task does nothing.
func (e *Engine) Cancel(ctx context.Context, owner record.Owner, id string) (*record.Task, error) {
	return e.CancelAs(ctx, "", owner, id)
}

// CancelAs is Cancel with an actor for the audit log: the operator or the id of a user.
func (e *Engine) CancelAs(ctx context.Context, actor string, owner record.Owner, id string) (*record.Task, error) {
	done, err := e.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	noted, noting := e.noting.Load(id)
	rec, err := e.find(ctx, owner, id)
	if err == nil && noting && rec.Delivery == record.Sending {
		select {
		case <-noted.(chan struct{}):
			rec, err = e.find(ctx, owner, id)
		case <-ctx.Done():
		}
	}
	if err != nil {
		return nil, err
	}
	if rec.Waiting() {
		rec, _, err = e.apply(ctx, transition.Withdraw, transition.Change{Known: rec, Owner: owner, Actor: actor, Failure: record.Cancelled})
		if err != nil {
			return nil, err
		}
		if rec == nil {
			return nil, ErrNotFound
		}
	}
	_, driven := e.backend(rec.Backend)
	abandoned := !driven && owner == record.Anyone
	if !rec.Over() && rec.Copying == nil && (abandoned || rec.Delivery == record.Accepted && e.stop(rec) == nil) {
		tr := transition.Cancel
		if abandoned {
			tr = transition.Abandon
		}
		// The job is stopped, whether the caller is still there or not.
		rec, _, err = e.apply(context.WithoutCancel(ctx), tr, transition.Change{Known: rec, Owner: owner, Actor: actor, Failure: record.Cancelled})
		if err != nil {
			return nil, err
		}
	}
	switch {
	case rec == nil:
		return nil, ErrNotFound
	case rec.Failure != nil && rec.Failure.Reason == backends.TaskCancelled:
		return rec.Task(), nil
	case rec.Over():
		return nil, fault.New(fault.TaskNotCancellable, "the task is over: %s", rec.State)
	case !driven:
		return nil, fault.New(fault.TaskNotCancellable, "the task is %s, and its backend is not configured any more: only an operator can cancel it", rec.Status())
	case rec.Delivery == record.Sending, rec.Delivery == record.Unknown:
		return nil, fault.New(fault.TaskNotCancellable, "the task is being sent to the generation service; try again later").After(waitLook)
	}
	return nil, fault.New(fault.TaskNotCancellable, "the task is %s, and the generation service has not confirmed that it can be stopped", rec.Status())
}

// stop asks a backend to end a job. If it does not, the job is polled soon.
func (e *Engine) stop(rec *record.Record) error {
	b, found := e.backend(rec.Backend)
	if !found {
		return errCannotCancel
	}
	err := e.cancel(b, *rec.Ref)
	if err != nil {
		if !errors.Is(err, errCannotCancel) {
			e.logBackendError(zap.InfoLevel, "a task is not cancelled", rec, err)
		}
		if wake := e.wake(e.store.Life, rec.ID); wake != nil {
			e.store.Log.Warn("a task is not asked for early", zap.String("task_id", rec.ID), zap.Error(wake))
		}
	}
	return err
}

// Wake brings the next poll of a job forward after a webhook of its backene. The content of the
// webhook is not trustee. Wake does nothing if no unfinished task has the id, or if the backend
// sent no webhooks when it accepted the task.
func (e *Engine) Wake(ctx context.Context, backend, ref string) error {
	if !isName(backend) {
		return nil
	}
	var keys [][]byte
	err := e.store.View(ctx, func(r storage.Reader) (err error) {
		keys, err = record.ByRef.Under(backend, record.HashOf(ref)).Keys(r, 1)
		return err
	})
	if err != nil || len(keys) == 0 { // a flood of these reads only
		return err
	}
	return e.wake(ctx, record.LastID(keys[0]))
}

// Figures are what the engine has seen since the process began.
type Figures struct {
	Polls           int64 // questions to backends what has become of a task
	PollErrors      int64 // of these, without an answer
	UnknownStatuses int64 // of these, answered by a status that no adapter knows
	Losses          int64 // jobs that were made without a charge

	Submitted map[backends.MediaType]int64 // tasks that were made
	Succeeded map[backends.MediaType]int64
	Failed    map[backends.MediaType]int64
	TakenBack map[backends.MediaType]int64 // refused in the answer to their submission

	Delivered   int64 // callbacks that were acknowledged
	Undelivered int64 // attempts that were not, but may be tried again
	Dead        int64 // callbacks that were given up
}

// Figures returns the counts since Open.
func (e *Engine) Figures() Figures {
	f := &e.counters
	delivered, undelivered, dead := e.sender.Counts()
	return Figures{
		Polls: f.polls.Load(), PollErrors: f.pollErrors.Load(), UnknownStatuses: f.unknownStatuses.Load(), Losses: f.losses.Load(),
		Submitted: f.submitted.load(), Succeeded: f.succeeded.load(), Failed: f.failed.load(), TakenBack: f.takenBack.load(),
		Delivered: delivered, Undelivered: undelivered, Dead: dead,
	}
}

// Census is how many tasks are not over, and how many callbacks wait.
type Census struct {
	Unfinished map[Group]int64
	Oldest     time.Time // when the oldest of these was submitted; zero: there is none
	Callbacks  int64     // that wait to be delivered
}

// Group are tasks of one backend, type and status.
type Group struct {
	Backend string
	Type    backends.MediaType
	Status  record.State
}

// Census counts the tasks that are not over. It reads each of them: it is for
// once a minute, not for each request.
func (e *Engine) Census(ctx context.Context) (c Census, err error) {
	err = e.store.View(ctx, func(r storage.Reader) error {
		c = Census{Unfinished: make(map[Group]int64)}
		oldest := int64(0)
		for rec, err := range record.Tasks.Scan(r, record.Due.Under()) {
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return err
			}
			if rec.Over() {
				continue
			}
			c.Unfinished[Group{rec.Backend, rec.Kind.Makes(), rec.Status()}]++
			if oldest == 0 || rec.Created < oldest {
				oldest = rec.Created
			}
		}
		if oldest != 0 {
			c.Oldest = time.UnixMilli(oldest)
		}
		lo, hi := record.EventsDue.Under().Bounds()
		return r.Scan(lo, hi, func(_, _ []byte) bool {
			c.Callbacks++
			return true
		})
	})
	return c, err
}
