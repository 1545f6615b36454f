package task

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

// submitTimeout is how long a backend may take to accept a job.
const submitTimeout = 30 * time.Second

// waiter is a submission that waits for its delivery. If a refusal arrives before the timeout, it is
// the answer to the submission. Otherwise the refusal ends the task.
type waiter struct {
	state    atomic.Int32
	accepted chan struct{} // closed when the backend has accepted the job
	done     chan struct{} // closed when the delivery has ended
	refused  *backends.Error
	err      error
}

const (
	waiting  = iota
	answered // the submission has been answered
	refusing // the refusal will be the answer
)

// stopWaiting reports whether the submission may be answered before the delivery has ended.
func (w *waiter) stopWaiting() bool { return w != nil && w.state.CompareAndSwap(waiting, answered) }

// answerRefusal reports whether a refusal will be the answer to the submission.
func (w *waiter) answerRefusal() bool { return w != nil && w.state.CompareAndSwap(waiting, refusing) }

// deliver sends the job of a task that has a slot, and writes the result.
func (d *driver) deliver(rec *record.Record, job backends.Job, w *waiter) {
	b, found := d.backend(d.name)
	if !found { // a reload has removed the backend before the job was sent
		d.applyDurably(transition.PutBack, transition.Change{Known: rec})
		return
	}
	if d.store.Ready() != nil { // this node may have been ended: then another one owns the task
		d.applyDurably(transition.PutBack, transition.Change{Known: rec})
		return
	}
	ctx, cancel := context.WithTimeout(d.store.Life, submitTimeout)
	ref, err := submit(ctx, b, job)
	cancel()
	if err == nil {
		recorded := make(chan struct{})
		d.accepting.Store(rec.ID, recorded)
		defer func() {
			d.accepting.Delete(rec.ID)
			close(recorded)
		}()
		if w != nil {
			close(w.accepted)
		}
		d.noteAccepted(b, rec, ref)
		return
	}
	defer d.nudgeDriver(d.name) // the slot may be free
	d.logBackendError(zap.InfoLevel, "a backend did not accept a task", rec, err)
	refusal, _ := errors.AsType[*backends.Error](err)
	switch backends.KindOf(err) {
	case backends.Busy:
		d.handleRefusal(b, rec, refusal)
	case backends.Refused:
		if concernsOperator(refusal) {
			d.handleRefusal(b, rec, refusal)
			return
		}
		if w.answerRefusal() {
			d.rollBack(rec, refusal, w)
			return
		}
		d.applyDurably(transition.Reject, transition.Change{Known: rec, Failure: record.NewError(refusal.Reason, refusal.Message)})
	default:
		d.markUnknown(b, rec, transition.Interval(0, 0))
	}
}

// concernsOperator reports whether a refusal concerns the rights of the operator at the service: the
// account, or one model. The caller cannot correct that.
func concernsOperator(refusal *backends.Error) bool {
	switch refusal.Status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return refusal.Reason == backends.UpstreamError
	}
	return false
}

// submit calls b.Submit, or b.Remix for a job that changes an earlier result. After a panic, or
// without a reference for polls, the delivery is unknown.
func submit(ctx context.Context, b Backend, job backends.Job) (ref backends.Ref, err error) {
	defer catchPanic(&err)
	if job.Source == nil {
		ref, err = b.Submit(ctx, job)
	} else if remixer, can := b.Backend.(backends.Remixer); can {
		ref, err = remixer.Remix(ctx, *job.Source, job)
	} else { // a reload has changed the adapter since the submission
		return ref, &backends.Error{Kind: backends.Refused, Reason: backends.InvalidInput, Message: errCannotRemix.Message}
	}
	if err == nil && ref.ID == "" {
		err = errNoReference
	}
	return ref, err
}

// noteAccepted writes that the backend has accepted the job.
func (d *driver) noteAccepted(b Backend, rec *record.Record, ref backends.Ref) {
	_, notifies := b.Backend.(backends.Notified)
	after, _ := d.applyDurably(transition.Accept, transition.Change{Known: rec, Ref: &ref, NoWebhook: !notifies})
	switch {
	case after == nil: // the engine has ended: the next engine finds the job by its token
	case after.Over():
		d.noteLateAcceptance(b, after, ref)
	default:
		d.resetRefusals(rec)
	}
}

// noteLateAcceptance counts a job that the backend accepted after its task had ended, and cancels it.
func (d *driver) noteLateAcceptance(b Backend, rec *record.Record, ref backends.Ref) {
	d.store.Log.Error("a backend accepted a task after the task had failed: the operator pays for the job",
		zap.String("task_id", rec.ID), zap.String("backend", rec.Backend), zap.String("ref", ref.ID))
	d.counters.losses.Add(1)
	_ = d.cancel(b, ref)
}

// rollBack removes a task. The refusal is the answer to its submission.
func (d *driver) rollBack(rec *record.Record, refusal *backends.Error, w *waiter) {
	after, recorded := d.applyDurably(transition.RollBack, transition.Change{Known: rec})
	switch {
	case !recorded:
		w.err = fault.New(fault.StoreUnavailable, "the store does not answer").After(5 * time.Second)
	case after == nil: // otherwise another engine has found the job, or the task has ended
		d.counters.rolledBack.add(rec.Kind)
		w.refused = refusal
	}
}
