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
	// goneGrace is how long a backend may say that it does not know a job before the task fails: not
	// every machine of a service knows a new job at once.
	goneGrace = 10 * time.Minute

	// watchFor is how long a job is polled whose task has timed out: if it succeeds its cost is the
	// operator's loss.
	watchFor = 24 * time.Hour
)

// maxResults is how many results of a job are accepted if fewer were asked for. Records, callbacks
// and transactions hold them all.
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
func (d *driver) poll(b Backend, rec *record.Record) {
	d.counters.polls.Add(1)
	status, err := pollBackend(d.store.Life, b, rec)
	if d.store.Life.Err() != nil {
		return
	}
	if err != nil {
		d.counters.pollErrors.Add(1)
		d.logBackendError(zap.InfoLevel, "a backend does not tell of a task", rec, err)
		status = backends.Status{}
		if asked, ok := errors.AsType[*backends.Error](err); ok {
			status.RetryAfter = asked.RetryAfter
		}
	}
	now := d.now()
	gone := backends.KindOf(err) == backends.Gone && err != nil
	switch {
	case status.State == backends.Succeeded:
		d.copyResults(b, rec, record.MediaOf(status.Results), status.Cost)
	case rec.Copying != nil: // it had succeeded: what it says now takes nothing back
		d.copyResults(b, rec, rec.Copying, rec.CopyingCost)
	case status.State == backends.Failed:
		d.move(transition.Fail, transition.Change{Known: rec, Failure: record.NewError(status.Failure.Reason, status.Failure.Message), Cost: status.Cost})
	case gone && rec.Gone != 0 && now >= rec.Gone+goneGrace.Milliseconds():
		d.fail(rec, record.NewError(backends.UpstreamError, "the generation service does not know the task any more"))
	case now >= rec.Deadline:
		// The job is watched unless the backend confirms that it ends it.
		watch := now + watchFor.Milliseconds()
		if d.cancel(b, *rec.Ref) == nil {
			watch = 0
		}
		d.move(transition.Fail, transition.Change{Known: rec, Failure: record.TimedOut, Watch: watch})
	default:
		if status.State == backends.Unknown {
			d.counters.unknownStatuses.Add(1)
		}
		d.move(transition.Poll, transition.Change{Known: rec, Status: status, NoAnswer: err != nil, Gone: gone})
	}
}

// watch polls the job of a task that has timed out: if it succeeds, its cost is a loss.
func (d *driver) watch(b Backend, rec *record.Record) {
	status, err := pollBackend(d.store.Life, b, rec)
	if status.State == backends.Succeeded {
		d.lose(rec, status.Cost)
	}
	d.move(transition.Watch, transition.Change{
		Known:   rec,
		Watched: status.State == backends.Succeeded || status.State == backends.Failed || err != nil && backends.KindOf(err) == backends.Gone,
	})
}
