package task

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Retry processes a task now, for an operator who knows that its backend has recovered. A task that
// its backend has refused returns to the queue. A task that waits for a slot keeps waiting.
func (e *Engine) Retry(ctx context.Context, actor, id string) (*record.Task, error) {
	rec, err := e.readTask(ctx, record.Anyone, id)
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

// Cancel ends a task of an owner before it has results. A task whose job was not sent ends at once.
// Otherwise the backend must confirm that the job ends without a result. If the backend is no longer
// configured, an operator may cancel the task. In all other cases the task continues and Cancel
// returns an error. Cancelling a cancelled task does nothing.
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
	durable, accepting := e.accepting.Load(id)
	rec, err := e.readTask(ctx, owner, id)
	if err == nil && accepting && rec.Delivery == record.Sending {
		select {
		case <-durable.(chan struct{}):
			rec, err = e.readTask(ctx, owner, id)
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
	abandoned := !driven && owner == record.Anyone && e.isOrphan(rec)
	if !rec.Over() && rec.Copying == nil && (abandoned || rec.Delivery == record.Accepted && e.stop(rec) == nil) {
		tr := transition.Cancel
		if abandoned {
			tr = transition.Abandon
		}
		// The backend has stopped the job, so this is written even if the caller has disconnected.
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
		return nil, fault.New(fault.TaskNotCancellable, "the task is %s, and its backend is no longer configured: only an operator can cancel it%s", rec.Status(), e.otherNodes())
	case rec.Delivery == record.Sending, rec.Delivery == record.Unknown:
		return nil, fault.New(fault.TaskNotCancellable, "the task is being sent to the generation service; try again later").After(5 * time.Second)
	}
	return nil, fault.New(fault.TaskNotCancellable, "the task is %s, and the generation service has not confirmed that it can be stopped", rec.Status())
}

// Delete hides a finished task from its API key, for ever. Its user, the operator and the ledger keep
// it, and its idempotency key stays in use. It returns an error for an unfinished task.
func (e *Engine) Delete(ctx context.Context, owner record.Owner, id string) error {
	done, err := e.begin()
	if err != nil {
		return err
	}
	defer done()
	rec, err := e.readTask(ctx, owner, id)
	switch {
	case err != nil:
		return err
	case !rec.Over():
		return fault.New(fault.Conflict, "the task is %s; a task can be deleted when it is over", rec.Status())
	}
	after, _, err := e.apply(ctx, transition.Delete, transition.Change{Known: rec, Owner: owner})
	if err == nil && after == nil {
		err = ErrNotFound
	}
	return err
}

// stop cancels a job at its backend. If the backend does not confirm, stop brings the next poll
// forward.
func (e *Engine) stop(rec *record.Record) error {
	b, found := e.backend(rec.Backend)
	if !found {
		return errCannotCancel
	}
	err := e.cancel(b, *rec.Ref)
	if err != nil {
		if !errors.Is(err, errCannotCancel) {
			e.logBackendError(zap.InfoLevel, "a backend did not cancel a task", rec, err)
		}
		if wake := e.wake(e.store.Life, rec.ID); wake != nil {
			e.store.Log.Warn("cannot bring the next poll of a task forward", zap.String("task_id", rec.ID), zap.Error(wake))
		}
	}
	return err
}

// Wake brings the next poll of a job forward after a webhook of its backend. The content of the
// webhook is not trusted. Wake does nothing if no unfinished task has this reference, or if the
// adapter did not support webhooks when the backend accepted the task.
func (e *Engine) Wake(ctx context.Context, backend, ref string) error {
	if !IsBackendName(backend) {
		return nil
	}
	var keys [][]byte
	err := e.store.View(ctx, func(r storage.Reader) (err error) {
		keys, err = record.ByRef.Under(backend, record.HashOf(ref)).Keys(r, 1)
		return err
	})
	if err != nil || len(keys) == 0 { // unknown references cause no write
		return err
	}
	return e.wake(ctx, record.LastID(keys[0]))
}

var errCannotCancel = errors.New("the backend cannot end jobs")

// cancel cancels a job at a backend.
func (c *core) cancel(b Backend, ref backends.Ref) (err error) {
	defer catchPanic(&err)
	backend, can := b.Backend.(backends.Canceler)
	if !can {
		return errCannotCancel
	}
	ctx, cancel := context.WithTimeout(c.store.Life, pollTimeout)
	defer cancel()
	return backend.Cancel(ctx, ref)
}
