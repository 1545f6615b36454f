package task

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/storage"
)

const (
	// goneGrace is how long a backend may say that it knows no such job before
	// the task fails: a job that was taken just now is not everywhere at once.
	goneGrace = 10 * time.Minute

	// watchFor is how long a job is watched whose task has timed out, and
	// watchEvery how often: what comes of it is the operator's loss.
	watchFor   = 24 * time.Hour
	watchEvery = time.Hour
)

var timeout = failure(backends.TaskTimeout, "the task was not finished in time")

// maxResults is how many results of a job are taken in where it was asked for
// fewer. Records, callbacks and transactions hold them all.
const maxResults = 16

// pollBackend is b.Poll, of which a panic tells nothing, and nor do more results than the
// job can have.
func pollBackend(ctx context.Context, b Backend, rec *record) (status backends.Status, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	status, err = b.Poll(ctx, *rec.Ref)
	switch {
	case err != nil:
	case status.State == backends.Succeeded && len(status.Results) == 0:
		err = errNoResults
	case status.State == backends.Succeeded:
		most := maxResults
		if rec.Quote != nil {
			most = max(most, int(rec.Quote.Asked.Count))
		}
		status.Results = status.Results[:min(len(status.Results), most)]
	case status.State == backends.Failed && status.Failure == nil:
		status.Failure = &backends.Failure{Reason: backends.ModelFailed, Message: "the model failed to generate a result"}
	}
	return status, err
}

// poll asks a backend for a job that it has accepted.
func (d *driver) poll(b Backend, rec *record) {
	e := d.engine
	e.figures.polls.Add(1)
	status, err := pollBackend(e.life, b, rec)
	if e.life.Err() != nil {
		return
	}
	if err != nil {
		e.figures.pollErrors.Add(1)
		e.logBackendError(zap.InfoLevel, "a backend does not tell of a task", rec, err)
		status = backends.Status{}
		if asked, ok := errors.AsType[*backends.Error](err); ok {
			status.RetryAfter = asked.RetryAfter
		}
	}
	now := e.now()
	gone := backends.KindOf(err) == backends.Gone && err != nil
	switch {
	case status.State == backends.Succeeded:
		d.deliver(b, rec, newResults(status.Results), status.Cost)
	case rec.Copying != nil: // it had succeeded: what it says now takes nothing back
		d.deliver(b, rec, rec.Copying, rec.CopyingCost)
	case status.State == backends.Failed:
		d.finish(rec, outcome{
			state: Failed, failure: failure(status.Failure.Reason, status.Failure.Message), cost: status.Cost, only: rec.fenced,
		})
	case gone && rec.Gone != 0 && now >= rec.Gone+goneGrace.Milliseconds():
		d.finish(rec, outcome{
			state: Failed, failure: failure(backends.UpstreamError, "the generation service does not know the task any more"), only: rec.fenced,
		})
	case now >= rec.Deadline:
		d.timeOut(b, rec)
	default:
		d.release(rec, func(r *record) int64 { return r.heard(e, status, err, gone) })
	}
}

// heard notes what a poll has told, and returns when to ask again.
func (r *record) heard(e *Engine, status backends.Status, err error, gone bool) (due int64) {
	now := e.now()
	r.Polled = now
	switch {
	case !gone:
		r.Gone = 0
	case r.Gone == 0:
		r.Gone = now
	}
	r.Failing++
	if err == nil {
		r.Failing = 0
	}
	switch status.State {
	case backends.Running:
		r.State = InProgress
		r.Progress = max(r.Progress, min(status.Progress, 99))
		r.UnknownStatus = ""
	case backends.Unknown:
		e.figures.unknownStatuses.Add(1)
		r.UnknownStatus = status.Word
		r.UnknownStatusCount++
	}
	wait := interval(time.Duration(now-r.AcceptedAt)*time.Millisecond, r.Failing)
	wait = max(wait, min(status.RetryAfter, maxPause))
	due = now + wait.Milliseconds()
	if r.Deadline > now { // the deadline is looked at when it is there
		due = min(due, r.Deadline)
	}
	return due
}

// timeOut ends a task whose time is over. The backend is asked to end its job;
// unless it confirms that, the job is watched.
func (d *driver) timeOut(b Backend, rec *record) {
	watch := d.engine.now() + watchFor.Milliseconds()
	if d.cancel(b, *rec.Ref) == nil {
		watch = 0
	}
	d.finish(rec, outcome{state: Failed, failure: timeout, watch: watch, only: rec.fenced})
}

var errCannotCancel = errors.New("the backend cannot end jobs")

// cancel is Cancel, where the backend can.
func (d *driver) cancel(b Backend, ref backends.Ref) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	c, can := b.Backend.(backends.Canceler)
	if !can {
		return errCannotCancel
	}
	ctx, cancel := context.WithTimeout(d.engine.life, pollTimeout)
	defer cancel()
	return c.Cancel(ctx, ref)
}

// watch looks what became of a job whose task has timed out.
func (d *driver) watch(b Backend, rec *record) {
	e := d.engine
	status, err := pollBackend(e.life, b, rec)
	over := status.State == backends.Succeeded || status.State == backends.Failed || err != nil && backends.KindOf(err) == backends.Gone
	if status.State == backends.Succeeded {
		d.finish(rec, outcome{state: Success, results: newResults(status.Results), cost: status.Cost, only: rec.fenced})
	}
	now := e.now()
	err = e.update(e.life, func(t storage.Txn) error {
		_, err := changeKnown(t, rec, func(r *record) bool {
			if !rec.fenced(r) {
				return false
			}
			r.Lease, r.Woken = 0, false
			r.Due = now + watchEvery.Milliseconds()
			if over || now >= r.WatchUntil {
				r.Due, r.WatchUntil = 0, 0
			}
			return true
		})
		return err
	})
	if err != nil {
		e.log.Warn("a look at a task is lost, it is looked at again", zap.String("task_id", rec.ID), zap.Error(err))
	}
}

// Wake brings the next poll of a job forward: a backend has told that it has
// changed. What else it told is not believed. An id that no unfinished task has
// does nothing, and nor does one of a task that was handed over while the backend
// did not tell of any.
func (e *Engine) Wake(ctx context.Context, backend, ref string) error {
	if !isName(backend) {
		return nil
	}
	var keys [][]byte
	err := e.view(ctx, func(r storage.Reader) (err error) {
		keys, err = ofRef.Under(backend, hashOf(ref)).Keys(r, 1)
		return err
	})
	if err != nil || len(keys) == 0 { // a flood of these reads only
		return err
	}
	return e.wake(ctx, backend, lastID(keys[0]))
}

// wake brings the next poll of a task forward, if it is at its backend.
func (e *Engine) wake(ctx context.Context, backend, id string) error {
	var due bool
	err := e.update(ctx, func(t storage.Txn) error {
		due = false
		now := e.now()
		_, err := change(t, id, func(r *record) bool {
			if r.over() || r.Delivery != Accepted {
				return false
			}
			if now < r.Lease { // the poll under way may have come too early
				first := !r.Woken
				r.Woken = true
				return first
			}
			at := max(now, r.Polled+wakePause.Milliseconds())
			due = at < r.Due
			r.Due = min(r.Due, at)
			return due
		})
		return err
	})
	if due {
		e.nudge(backend)
	}
	return err
}
