package task

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

const (
	// goneGrace is how long a backend may report a job as not found before the task fails. Not
	// every machine of a service knows a new job at once.
	goneGrace = 10 * time.Minute

	// watchFor is how long the job of a task is polled after the task has timed out. If the job
	// succeeds, its cost is a loss of the operator.
	watchFor = 24 * time.Hour
)

// maxResults is how many results of a job are accepted, or the requested number if that is larger.
// Records, callbacks and transactions contain all results.
const maxResults = 16

// pollBackend calls Poll, converts a panic to an error and truncates excess results.
func pollBackend(ctx context.Context, b Backend, rec *record.Record) (status backends.Status, err error) {
	defer catchPanic(&err)
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	status, err = b.Poll(ctx, *rec.Ref)
	switch {
	case err != nil:
	case status.State == backends.Succeeded && len(status.Results) == 0:
		err = errNoResults
	case status.State == backends.Succeeded:
		limit := maxResults
		if rec.Quote != nil {
			limit = max(limit, int(rec.Quote.Asked.Count))
		}
		status.Results = status.Results[:min(len(status.Results), limit)]
	case status.State == backends.Failed && status.Failure == nil:
		status.Failure = &backends.Failure{Reason: backends.ModelFailed, Message: "the model failed to generate a result"}
	}
	return status, err
}

// poll queries the status of a job that the backend has accepted.
func (d *driver) poll(b Backend, rec *record.Record) {
	d.counters.polls.Add(1)
	status, err := pollBackend(d.store.Life, b, rec)
	if d.store.Life.Err() != nil {
		return
	}
	if err != nil {
		d.counters.pollErrors.Add(1)
		d.logBackendError(zap.InfoLevel, "cannot poll a task at its backend", rec, err)
		status = backends.Status{}
		if answer, ok := errors.AsType[*backends.Error](err); ok {
			status.RetryAfter = answer.RetryAfter
		}
	}
	now := d.now()
	gone := backends.KindOf(err) == backends.Gone && err != nil
	switch {
	case status.State == backends.Succeeded:
		d.copyResults(b, rec, record.MediaOf(status.Results), status.Cost)
	case rec.Copying != nil: // an earlier poll reported success, which is final
		d.copyResults(b, rec, rec.Copying, rec.CopyingCost)
	case status.State == backends.Failed:
		d.applyClaimed(transition.Fail, transition.Change{Known: rec, Failure: record.NewError(status.Failure.Reason, status.Failure.Message), Cost: status.Cost})
	case gone && rec.Gone != 0 && now >= rec.Gone+goneGrace.Milliseconds():
		d.fail(rec, record.NewError(backends.UpstreamError, "the generation service no longer knows the task"))
	case now >= rec.Deadline:
		// The job is polled further unless the backend confirms that it has ended the job.
		watch := now + watchFor.Milliseconds()
		if d.cancel(b, *rec.Ref) == nil {
			watch = 0
		}
		d.applyClaimed(transition.Fail, transition.Change{Known: rec, Failure: record.TimedOut, Watch: watch})
	default:
		if status.State == backends.Unknown {
			d.counters.unknownStatuses.Add(1)
		}
		d.applyClaimed(transition.Poll, transition.Change{Known: rec, Status: status, NoAnswer: err != nil, Gone: gone})
	}
}

// watchJob polls the job of a task that has timed out. If the job succeeds, its cost is a loss.
func (d *driver) watchJob(b Backend, rec *record.Record) {
	status, err := pollBackend(d.store.Life, b, rec)
	if status.State == backends.Succeeded {
		d.recordLoss(rec, status.Cost)
	}
	d.applyClaimed(transition.Watch, transition.Change{
		Known:   rec,
		Watched: status.State == backends.Succeeded || status.State == backends.Failed || err != nil && backends.KindOf(err) == backends.Gone,
	})
}
