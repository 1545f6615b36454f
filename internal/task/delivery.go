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
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// grace is how long a job in doubt is looked for before its task fails.
const grace = 10 * time.Minute

// A job in doubt is looked for a few times within the grace, each pause longer than
// the one before: at many services looking for it means to submit it again.
const (
	maxSearches  = 6
	firstSearch  = 2 * time.Second
	searchGrowth = 3
)

// waiter is a submission that waits for its hand-over. Who answers it first, the
// hand-over or the time, decides what a refusal is: the answer, or the end of a
// task that was given out.
type waiter struct {
	state   atomic.Int32
	taken   chan struct{} // closed when the backend has the job
	done    chan struct{} // closed when the hand-over is over
	refused *backends.Error
	err     error
}

const (
	waiting  = iota
	left     // the submission has been answered
	refusing // it is going to be answered by the refusal
)

// leave tells whether the submission may be answered before the hand-over is over.
func (w *waiter) leave() bool { return w != nil && w.state.CompareAndSwap(waiting, left) }

// refuse tells whether a refusal will be the answer to the submission.
func (w *waiter) refuse() bool { return w != nil && w.state.CompareAndSwap(waiting, refusing) }

// await hands a task over that a submission has just made, and waits a while.
func (e *Engine) await(ctx context.Context, rec *record, job backends.Job) (*Task, bool, error) {
	w := &waiter{taken: make(chan struct{}), done: make(chan struct{})}
	e.steps.Go(func() {
		defer close(w.done)
		e.handOver(rec, job, w)
	})
	timer := time.NewTimer(deliveryWait)
	defer timer.Stop()
	select {
	case <-w.taken: // that this is noted, too, nobody has to wait for
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

// handOver sends the job of a task that has a slot, and notes what came of it.
func (e *Engine) handOver(rec *record, job backends.Job, w *waiter) {
	b, found := e.backend(rec.Backend)
	if !found { // a reload took it away: nothing was sent
		e.putBack(rec)
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
		e.durably("noting a refusal", rec.ID, func(ctx context.Context) error {
			_, err := e.finish(ctx, rec, outcome{
				state: Failed, handover: Rejected, failure: failure(refusal.Reason, refusal.Message),
				only: func(r *record) bool { return r.Attempt == rec.Attempt },
			})
			return err
		})
	default:
		e.doubt(b, rec)
	}
}

// ofTheOperator tells whether a refusal speaks of what the operator may do at the
// service, and not of the job: of the account, or of one model. No caller can mend
// that.
func ofTheOperator(refusal *backends.Error) bool {
	switch refusal.Status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return refusal.Reason == backends.UpstreamError
	}
	return false
}

// submit is b.Submit, of which a panic leaves the job in doubt, and so does a
// reference by which nobody could ask for it.
func submit(ctx context.Context, b Backend, job backends.Job) (ref backends.Ref, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	ref, err = b.Submit(ctx, job)
	if err == nil && ref.ID == "" {
		err = errNoReference
	}
	return ref, err
}

// accepted notes that a backend has the job, and returns the task as it stands
// then; nil when it could not be noted. It holds for a task whose hand-over is in
// doubt, too: there was one submission.
func (e *Engine) accepted(b Backend, rec *record, ref backends.Ref) (after *record) {
	_, tells := b.Backend.(backends.Notified)
	e.durably("noting an accepted task", rec.ID, func(ctx context.Context) error {
		return e.update(ctx, func(t storage.Txn) (err error) {
			after, err = changeKnown(t, rec, func(r *record) bool {
				if r.over() || r.Attempt != rec.Attempt || r.Delivery != Sending && r.Delivery != Unknown {
					return false
				}
				now := e.now()
				r.Delivery, r.Ref, r.NoWebhook, r.AcceptedAt, r.UnknownSince, r.Body = Accepted, &ref, !tells, now, 0, nil
				r.Refusals, r.RefusedSince, r.Refusal, r.Searches = 0, 0, "", 0
				r.Deadline = min(r.Created+submissionLife.Milliseconds(), now+jobLife.Milliseconds())
				r.Fence++ // a look at the doubt, if there is one, does not count any more
				r.release(r.firstPoll(now))
				return true
			})
			return err
		})
	})
	switch {
	case after == nil: // it ended with the engine: the token finds it
	case after.over():
		e.lost(b, after, ref)
	default:
		e.calm(rec)
		e.watch.tell(after.ID) // it may have been shown as pending since
		e.changed(rec, after)
	}
	return after
}

// firstPoll is when a job is asked for that a backend has just accepted: when the
// task was due in any case, if it stands as [record.send] has left it and that is
// not too soon.
func (r *record) firstPoll(now int64) int64 {
	next := now + interval(0, 0).Milliseconds()
	if r.Due < r.Lease && r.Due >= now+wakePause.Milliseconds() && r.Due < next+wakePause.Milliseconds() {
		return r.Due
	}
	return next
}

// lost is a job that a backend accepted after its task was given up.
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

// doubt notes that nobody knows whether the backend has the job.
func (e *Engine) doubt(b Backend, rec *record) {
	var after *record
	e.durably("noting a doubtful task", rec.ID, func(ctx context.Context) error {
		return e.update(ctx, func(t storage.Txn) (err error) {
			after, err = changeKnown(t, rec, func(r *record) bool {
				if r.Delivery != Sending || r.Attempt != rec.Attempt {
					return false
				}
				r.inDoubt(b, e.now())
				return true
			})
			return err
		})
	})
	if after != nil {
		e.changed(rec, after)
	}
}

// inDoubt has the job looked for, where the backend can, else given up after the
// grace.
func (r *record) inDoubt(b Backend, now int64) {
	r.Delivery, r.UnknownSince = Unknown, now
	if _, can := b.Backend.(backends.Reconciler); can {
		r.release(now + interval(0, 0).Milliseconds())
		return
	}
	r.release(now + grace.Milliseconds())
}

// release gives a claim back: the task is looked at again at due, or at once
// where somebody asked for that meanwhile.
func (r *record) release(due int64) {
	if r.Woken {
		due = min(due, r.Polled+wakePause.Milliseconds())
	}
	r.Lease, r.Woken, r.Due = 0, false, max(due, 1)
}

// takeBack removes a task whose submission is answered by the refusal: its money
// is free, its session id and its idempotency key are.
func (e *Engine) takeBack(rec *record, refusal *backends.Error, w *waiter) {
	gone := e.durably("taking back a refused task", rec.ID, func(ctx context.Context) error {
		return e.ledger.Update(ctx, rec.User, nil, func(t *ledger.Txn) error {
			have, err := tasks.Reread(t, rec)
			if err != nil || have == nil || have.over() || have.Attempt != rec.Attempt {
				return err
			}
			if have.Hold > 0 {
				if _, err := ledger.EndHold(t, e.store.Now(), have.usage(), holdID(have.ID), 0); err != nil {
					return err
				}
			}
			if err := freeNames(t, have); err != nil {
				return err
			}
			return replace(t, have, nil)
		})
	})
	if !gone {
		w.err = fault.New(fault.StoreUnavailable, "the store does not answer").After(5 * time.Second)
		return
	}
	e.figures.takenBack.add(rec.Kind)
	w.refused = refusal
}

// reconcile looks for a job in doubt.
func (d *driver) reconcile(b Backend, rec *record) {
	e := d.engine
	given := func(reason backends.Reason, message string) {
		d.finish(rec, outcome{state: Failed, failure: failure(reason, message), only: rec.fenced})
	}
	over := e.now() >= rec.UnknownSince+grace.Milliseconds() || rec.Searches+1 >= maxSearches
	r, can := b.Backend.(backends.Reconciler)
	if can {
		ref, err := d.find(r, rec)
		switch {
		case err == nil:
			e.accepted(b, rec, ref)
			return
		case backends.KindOf(err) == backends.Gone:
			given(backends.UpstreamError, "the generation service did not receive the task")
			return
		}
		e.logBackendError(zap.WarnLevel, "a doubtful task cannot be looked for", rec, err)
	}
	if over {
		e.log.Warn("a task in doubt is given up: its service may have made it, and charge for it",
			zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
		given(backends.UpstreamError, "the generation service did not confirm that it had accepted the task")
		return
	}
	d.release(rec, func(r *record) int64 {
		end := r.UnknownSince + grace.Milliseconds()
		if !can {
			return end
		}
		if r.Searches++; r.Searches == maxSearches-1 {
			return end
		}
		pause := jitter(firstSearch)
		for range r.Searches {
			pause *= searchGrowth
		}
		return min(end, e.now()+pause.Milliseconds())
	})
}

// find is Reconcile, of which a panic tells nothing.
func (d *driver) find(r backends.Reconciler, rec *record) (ref backends.Ref, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
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
