package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// waiter is a submission that waits for its delivery. The delivery and the timeout compete: if the
// delivery is first, a refusal is the answer to the submission, else it ends the task.
type waiter struct {
	state   atomic.Int32
	taken   chan struct{} // closed when the backend has the job
	done    chan struct{} // closed when the delivery is over
	refused *backends.Error
	err     error
}

const (
	waiting  = iota
	left     // the submission has been answered
	refusing // it is going to be answered by the refusal
)

// leave reports whether the submission may be answered before the delivery is over.
func (w *waiter) leave() bool { return w != nil && w.state.CompareAndSwap(waiting, left) }

// refuse reports whether a refusal will be the answer to the submission.
func (w *waiter) refuse() bool { return w != nil && w.state.CompareAndSwap(waiting, refusing) }

// await delivers a task that was just submitted, and waits for deliveryWait at most.
func (e *Engine) await(ctx context.Context, rec *record, job backends.Job) (*Task, bool, error) {
	w := &waiter{taken: make(chan struct{}), done: make(chan struct{})}
	e.steps.Go(func() {
		defer close(w.done)
		e.deliver(rec, job, w)
	})
	timer := time.NewTimer(deliveryWait)
	defer timer.Stop()
	select {
	case <-w.taken: // the submission does not wait until this is noted
		return rec.task(), false, nil
	case <-w.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	if !w.leave() {
		<-w.done // it is being taken back
	}
	switch {
	case w.err != nil:
		return nil, false, w.err
	case w.refused != nil:
		return nil, false, fault.At(fault.UpstreamRejected, w.refused.Param, "%s", w.refused.Message)
	}
	// The task is durable whatever the store says now.
	now := rec
	err := e.view(context.WithoutCancel(ctx), func(r storage.Reader) error {
		have, err := readTask(r, rec.ID)
		if err == nil && have != nil {
			now = have
		}
		return err
	})
	if err != nil {
		e.log.Warn("a task that was submitted cannot be read", zap.String("task_id", rec.ID), zap.Error(err))
	}
	return now.task(), false, nil
}

// deliver sends the job of a task that has a slot, and notes the answer.
func (e *Engine) deliver(rec *record, job backends.Job, w *waiter) {
	b, found := e.backend(rec.Backend)
	if !found { // a reload has removed it: nothing was sent
		e.note(transitionPutBack, change{known: rec})
		return
	}
	ctx, cancel := context.WithTimeout(e.life, submitTimeout)
	ref, err := submit(ctx, b, job)
	cancel()
	if err == nil {
		noted := make(chan struct{})
		e.noting.Store(rec.ID, noted)
		defer func() {
			e.noting.Delete(rec.ID)
			close(noted)
		}()
		if w != nil {
			close(w.taken)
		}
		e.accepted(b, rec, ref)
		return
	}
	defer e.nudge(rec.Backend) // its slot may be free
	e.logBackendError(zap.InfoLevel, "a backend did not accept a task", rec, err)
	refusal, _ := errors.AsType[*backends.Error](err)
	switch backends.KindOf(err) {
	case backends.Busy:
		e.refusedNow(b, rec, refusal)
	case backends.Refused:
		if ofTheOperator(refusal) {
			e.refusedNow(b, rec, refusal)
			return
		}
		if w.refuse() {
			e.takeBack(rec, refusal, w)
			return
		}
		e.note(transitionReject, change{known: rec, failure: failure(refusal.Reason, refusal.Message)})
	default:
		e.lostTrack(b, rec)
	}
}

// ofTheOperator reports whether a refusal concerns what the operator may do at the service: the
// account, or one model. No caller can mend that.
func ofTheOperator(refusal *backends.Error) bool {
	switch refusal.Status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return refusal.Reason == backends.UpstreamError
	}
	return false
}

// submit calls b.Submit. After a panic, or without a reference to poll by, the delivery is unknown.
func submit(ctx context.Context, b Backend, job backends.Job) (ref backends.Ref, err error) {
	defer catchPanic(&err)
	ref, err = b.Submit(ctx, job)
	if err == nil && ref.ID == "" {
		err = errNoReference
	}
	return ref, err
}

// accepted notes that a backend has the job.
func (e *Engine) accepted(b Backend, rec *record, ref backends.Ref) {
	_, notifies := b.Backend.(backends.Notified)
	after, _ := e.note(transitionAccept, change{known: rec, ref: &ref, noWebhook: !notifies})
	switch {
	case after == nil: // the engine has ended: the next one finds the job by its token
	case after.over():
		e.lost(b, after, ref)
	default:
		e.calm(rec)
	}
}

// lost handles a job that a backend accepted after its task had ended.
func (e *Engine) lost(b Backend, rec *record, ref backends.Ref) {
	e.log.Error("a backend has accepted a task after it had failed: its cost is the operator's loss",
		zap.String("task_id", rec.ID), zap.String("backend", rec.Backend), zap.String("ref", ref.ID))
	e.figures.losses.Add(1)
	if c, can := b.Backend.(backends.Canceler); can {
		ctx, cancel := context.WithTimeout(e.life, pollTimeout)
		defer cancel()
		_ = c.Cancel(ctx, ref)
	}
}

// lostTrack notes that it is not known whether the backend has the job.
func (e *Engine) lostTrack(b Backend, rec *record) {
	_, can := b.Backend.(backends.Reconciler)
	e.note(transitionMarkUnknown, change{known: rec, searchable: can})
}

// takeBack removes a task whose submission is answered by the refusal.
func (e *Engine) takeBack(rec *record, refusal *backends.Error, w *waiter) {
	after, noted := e.note(transitionTakeBack, change{known: rec})
	switch {
	case !noted:
		w.err = fault.New(fault.StoreUnavailable, "the store does not answer").After(5 * time.Second)
	case after == nil: // else another engine has found the job, or the task has ended: that is the answer
		e.figures.takenBack.add(rec.Kind)
		w.refused = refusal
	}
}

// reconcile looks for a job whose delivery is unknown.
func (d *driver) reconcile(b Backend, rec *record) {
	e := d.engine
	r, can := b.Backend.(backends.Reconciler)
	if can {
		ref, err := d.find(r, rec)
		switch {
		case err == nil:
			e.accepted(b, rec, ref)
			return
		case backends.KindOf(err) == backends.Gone:
			d.fail(rec, failure(backends.UpstreamError, "the generation service did not receive the task"))
			return
		}
		e.logBackendError(zap.WarnLevel, "a doubtful task cannot be looked for", rec, err)
	}
	if e.now() >= rec.UnknownSince+grace.Milliseconds() || rec.Searches+1 >= maxSearches {
		e.log.Warn("a task in doubt is given up: its service may have made it, and charge for it",
			zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
		d.fail(rec, failure(backends.UpstreamError, "the generation service did not confirm that it had accepted the task"))
		return
	}
	d.move(transitionSearch, change{known: rec, searchable: can})
}

// find calls Reconcile, and converts a panic to an error.
func (d *driver) find(r backends.Reconciler, rec *record) (ref backends.Ref, err error) {
	defer catchPanic(&err)
	job, err := d.engine.job(d.engine.life, rec)
	if err != nil {
		return ref, err
	}
	ctx, cancel := context.WithTimeout(d.engine.life, pollTimeout)
	defer cancel()
	ref, err = r.Reconcile(ctx, job)
	if err == nil && ref.ID == "" {
		err = errNoReference
	}
	return ref, err
}

// job returns what the backend of a task is asked for that it does not have yet.
func (e *Engine) job(ctx context.Context, rec *record) (job backends.Job, err error) {
	if rec.Enclosed {
		err = json.Unmarshal(rec.Body, &job)
		return job, err
	}
	err = e.view(ctx, func(r storage.Reader) error {
		found, err := storage.GetRecord(r, storage.Key(bodyPrefix, rec.ID), &job)
		if err == nil && !found {
			err = fmt.Errorf("task: %s has no body", rec.ID)
		}
		return err
	})
	return job, err
}
