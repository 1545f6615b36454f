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
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

// submitTimeout is how long a backend may take to accept a job.
const submitTimeout = 30 * time.Second

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

// deliver sends the job of a task that has a slot, and notes the answer.
func (d *driver) deliver(rec *record.Record, job backends.Job, w *waiter) {
	b, found := d.backend(d.name)
	if !found { // a reload has removed it: nothing was sent
		d.note(transition.PutBack, transition.Change{Known: rec})
		return
	}
	ctx, cancel := context.WithTimeout(d.store.Life, submitTimeout)
	ref, err := submit(ctx, b, job)
	cancel()
	if err == nil {
		noted := make(chan struct{})
		d.noting.Store(rec.ID, noted)
		defer func() {
			d.noting.Delete(rec.ID)
			close(noted)
		}()
		if w != nil {
			close(w.taken)
		}
		d.accepted(b, rec, ref)
		return
	}
	defer d.nudgeDriver(d.name) // its slot may be free
	d.logBackendError(zap.InfoLevel, "a backend did not accept a task", rec, err)
	refusal, _ := errors.AsType[*backends.Error](err)
	switch backends.KindOf(err) {
	case backends.Busy:
		d.refusedNow(b, rec, refusal)
	case backends.Refused:
		if ofTheOperator(refusal) {
			d.refusedNow(b, rec, refusal)
			return
		}
		if w.refuse() {
			d.takeBack(rec, refusal, w)
			return
		}
		d.note(transition.Reject, transition.Change{Known: rec, Failure: record.NewError(refusal.Reason, refusal.Message)})
	default:
		d.lostTrack(b, rec)
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
func (d *driver) accepted(b Backend, rec *record.Record, ref backends.Ref) {
	_, notifies := b.Backend.(backends.Notified)
	after, _ := d.note(transition.Accept, transition.Change{Known: rec, Ref: &ref, NoWebhook: !notifies})
	switch {
	case after == nil: // the engine has ended: the next one finds the job by its token
	case after.Over():
		d.lost(b, after, ref)
	default:
		d.calm(rec)
	}
}

// lost handles a job that a backend accepted after its task had ended.
func (d *driver) lost(b Backend, rec *record.Record, ref backends.Ref) {
	d.store.Log.Error("a backend has accepted a task after it had failed: its cost is the operator's loss",
		zap.String("task_id", rec.ID), zap.String("backend", rec.Backend), zap.String("ref", ref.ID))
	d.counters.losses.Add(1)
	_ = d.cancel(b, ref)
}

// lostTrack notes that it is not known whether the backend has the job.
func (d *driver) lostTrack(b Backend, rec *record.Record) {
	_, can := b.Backend.(backends.Reconciler)
	d.note(transition.MarkUnknown, transition.Change{Known: rec, Searchable: can})
}

// takeBack removes a task whose submission is answered by the refusal.
func (d *driver) takeBack(rec *record.Record, refusal *backends.Error, w *waiter) {
	after, noted := d.note(transition.TakeBack, transition.Change{Known: rec})
	switch {
	case !noted:
		w.err = fault.New(fault.StoreUnavailable, "the store does not answer").After(5 * time.Second)
	case after == nil: // else another engine has found the job, or the task has ended: that is the answer
		d.counters.takenBack.add(rec.Kind)
		w.refused = refusal
	}
}

// reconcile looks for a job whose delivery is unknown.
func (d *driver) reconcile(b Backend, rec *record.Record) {
	r, can := b.Backend.(backends.Reconciler)
	if can {
		ref, err := d.find(r, rec)
		switch {
		case err == nil:
			d.accepted(b, rec, ref)
			return
		case backends.KindOf(err) == backends.Gone:
			d.fail(rec, record.NewError(backends.UpstreamError, "the generation service did not receive the task"))
			return
		}
		d.logBackendError(zap.WarnLevel, "a task of unknown delivery cannot be searched for", rec, err)
	}
	if d.now() >= rec.UnknownSince+transition.Grace.Milliseconds() || rec.Searches+1 >= transition.MaxSearches {
		d.store.Log.Warn("a task of unknown delivery is given up: its service may have made it, and charge for it",
			zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
		d.fail(rec, record.NewError(backends.UpstreamError, "the generation service did not confirm that it had accepted the task"))
		return
	}
	d.move(transition.Search, transition.Change{Known: rec, Searchable: can})
}

// find calls Reconcile, and converts a panic to an error.
func (d *driver) find(r backends.Reconciler, rec *record.Record) (ref backends.Ref, err error) {
	defer catchPanic(&err)
	job, err := d.job(d.store.Life, rec)
	if err != nil {
		return ref, err
	}
	ctx, cancel := context.WithTimeout(d.store.Life, pollTimeout)
	defer cancel()
	ref, err = r.Reconcile(ctx, job)
	if err == nil && ref.ID == "" {
		err = errNoReference
	}
	return ref, err
}

// job returns what the backend of a task is asked for that it does not have yet.
func (d *driver) job(ctx context.Context, rec *record.Record) (job backends.Job, err error) {
	if rec.Enclosed {
		err = json.Unmarshal(rec.Body, &job)
		return job, err
	}
	err = d.store.View(ctx, func(r storage.Reader) error {
		found, err := storage.GetRecord(r, storage.Key(record.BodyPrefix, rec.ID), &job)
		if err == nil && !found {
			err = fmt.Errorf("task: %s has no body", rec.ID)
		}
		return err
	})
	return job, err
}
