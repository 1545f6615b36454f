package task

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/storage"
)

// maxResults is how many results of a job are accepted if fewer were asked for. Records, callbacks
// and transactions hold them all.
const maxResults = 16

// pollBackend calls Poll, converts a panic to an error and truncates excess results.
func pollBackend(ctx context.Context, b Backend, rec *record) (status backends.Status, err error) {
	defer catchPanic(&err)
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

// poll asks a backend for the status of a job that it has accepted.
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
		d.copyResults(b, rec, newResults(status.Results), status.Cost)
	case rec.Copying != nil: // it had succeeded: what it says now takes nothing back
		d.copyResults(b, rec, rec.Copying, rec.CopyingCost)
	case status.State == backends.Failed:
		d.move(transitionFail, change{known: rec, failure: failure(status.Failure.Reason, status.Failure.Message), cost: status.Cost})
	case gone && rec.Gone != 0 && now >= rec.Gone+goneGrace.Milliseconds():
		d.fail(rec, failure(backends.UpstreamError, "the generation service does not know the task any more"))
	case now >= rec.Deadline:
		// The job is watched unless the backend confirms that it ends it.
		watch := now + watchFor.Milliseconds()
		if d.cancel(b, *rec.Ref) == nil {
			watch = 0
		}
		d.move(transitionFail, change{known: rec, failure: timeout, watch: watch})
	default:
		if status.State == backends.Unknown {
			e.figures.unknownStatuses.Add(1)
		}
		d.move(transitionPoll, change{known: rec, status: status, noAnswer: err != nil, gone: gone})
	}
}

var errCannotCancel = errors.New("the backend cannot end jobs")

// cancel asks a backend to end a job.
func (d *driver) cancel(b Backend, ref backends.Ref) (err error) {
	defer catchPanic(&err)
	c, can := b.Backend.(backends.Canceler)
	if !can {
		return errCannotCancel
	}
	ctx, cancel := context.WithTimeout(d.engine.life, pollTimeout)
	defer cancel()
	return c.Cancel(ctx, ref)
}

// watch polls the job of a task that has timed out: if it succeeds, its cost is a loss.
func (d *driver) watch(b Backend, rec *record) {
	status, err := pollBackend(d.engine.life, b, rec)
	if status.State == backends.Succeeded {
		d.lose(rec, status.Cost)
	}
	d.move(transitionWatch, change{
		known:   rec,
		watched: status.State == backends.Succeeded || status.State == backends.Failed || err != nil && backends.KindOf(err) == backends.Gone,
	})
}

// Wake brings the next poll of a job forward after a webhook of its backend. The content of the
// webhook is not trusted. Wake does nothing if no unfinished task has the id, or if the backend
// sent no webhooks when it accepted the task.
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
	return e.wake(ctx, lastID(keys[0]))
}

// wake brings the next poll of a task forward, if it is at its backend.
func (e *Engine) wake(ctx context.Context, id string) error {
	_, _, err := e.move(ctx, transitionWake, change{known: &record{ID: id}})
	return err
}
