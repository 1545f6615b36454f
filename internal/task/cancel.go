package task

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

var cancelled = failure(backends.TaskCancelled, "the task was cancelled")

// Cancel ends a task of an owner before it has made anything. One that was not
// handed over ends at once; later it does when the backend confirms that its job
// ends without a result, or when nobody can confirm it, because the backend is not
// configured any more, and it is an operator who asks. Whatever else is the case,
// it is not cancelled, and runs on. Cancelling a cancelled task does nothing.
func (e *Engine) Cancel(ctx context.Context, owner Owner, id string) (*Task, error) {
	return e.CancelAs(ctx, "", owner, id)
}

// CancelAs is Cancel for a person, whom the audit names: the operator or the id
// of a user.
func (e *Engine) CancelAs(ctx context.Context, actor string, owner Owner, id string) (*Task, error) {
	if !e.begin() {
		return nil, fault.New(fault.Overloaded, "the gateway is shutting down").After(waitLook)
	}
	defer e.steps.Done()
	noted, noting := e.noting.Load(id)
	rec, err := e.find(ctx, owner, id)
	if err == nil && noting && rec.Handover == Sending {
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
		rec, err = e.finish(ctx, rec, outcome{state: Failed, failure: cancelled, by: actor, only: (*record).waiting})
		if err != nil {
			return nil, err
		}
		if rec == nil {
			return nil, ErrNotFound
		}
	}
	_, driven := e.backend(rec.Backend)
	abandoned := !driven && owner == Anyone
	if !rec.over() && rec.Made == nil && (abandoned || rec.Handover == Accepted && e.stop(rec) == nil) {
		// The job is stopped, whether the caller is still there or not.
		rec, err = e.finish(context.WithoutCancel(ctx), rec, outcome{
			state: Failed, failure: cancelled, by: actor, only: func(r *record) bool { return r.Made == nil },
		})
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
	case rec.Handover == Sending, rec.Handover == Doubt:
		return nil, fault.New(fault.TaskNotCancellable, "the task is being handed over; try again later").After(waitLook)
	}
	return nil, fault.New(fault.TaskNotCancellable, "the task is %s, and the generation service has not confirmed that it can be stopped", rec.status())
}

// stop has a backend end a job. What the job came to otherwise is asked soon.
func (e *Engine) stop(rec *record) error {
	e.mu.Lock()
	d := e.drivers[rec.Backend]
	e.mu.Unlock()
	b, found := e.backend(rec.Backend)
	if d == nil || !found {
		return errCannotCancel
	}
	err := d.cancel(b, *rec.Ref)
	if err != nil {
		if !errors.Is(err, errCannotCancel) {
			e.unmet(zap.InfoLevel, "a task is not cancelled", rec, err)
		}
		if wake := e.wake(e.life, rec.Backend, rec.ID); wake != nil {
			e.log.Warn("a task is not asked for early", zap.String("task_id", rec.ID), zap.Error(wake))
		}
	}
	return err
}
