package task

import (
	"context"
	"io"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

const (
	// copyTimeout is how long copying may fail before the task ends with the URLs of the backend
	// (docs/reference/tasks.md#files). copyRetry is the pause after a failure.
	copyTimeout = time.Hour
	copyRetry   = 15 * time.Second
)

// copyResults copies the results of a job and ends its task.
func (d *driver) copyResults(b Backend, rec *record.Record, results []record.Media, cost backends.Cost) {
	keeper := d.config.Load().Keeper
	if keeper == nil {
		d.passLinks(rec, results, cost)
		return
	}
	if !d.copies.TryAcquire() { // too many copies are running: the job is polled again
		d.release(rec, transition.Interval(0, 0))
		return
	}
	mine, done := d.applyClaimed(transition.Copy, transition.Change{Known: rec, Results: results, Cost: cost})
	if !done {
		d.copies.Release()
		return
	}
	d.store.Steps.Go(func() {
		defer func() { d.copies.Release(); d.Nudge() }()
		d.copyAndFinish(keeper, b, mine)
	})
}

// copyAndFinish copies results and ends the task. A copy that fails is repeated until copyTimeout
// has passed.
func (d *driver) copyAndFinish(keeper Keeper, b Backend, rec *record.Record) {
	ctx, stop := d.renewLease(rec)
	k := Keeping{Task: rec.ID, Key: rec.Key, User: rec.User, Backend: rec.Backend, MediaName: rec.MediaName, Results: record.BackendResults(rec.Copying)}
	if fetcher, can := b.Backend.(backends.Fetcher); can {
		k.Fetch = func(ctx context.Context, index int) (io.ReadCloser, backends.Content, error) {
			return fetcher.Fetch(ctx, *rec.Ref, index)
		}
	}
	links, err := keeper.Keep(ctx, k)
	stop()
	switch {
	case err == nil && len(links) == len(rec.Copying):
		kept := make([]record.Media, len(links))
		for i, m := range rec.Copying {
			kept[i] = m
			kept[i].URL = links[i]
		}
		d.succeed(rec, kept, rec.CopyingCost)
	case d.store.Life.Err() != nil:
	case d.now() >= rec.CopyingSince+copyTimeout.Milliseconds():
		d.logCopyError(zap.ErrorLevel, "cannot copy the results of a task: it ends with the URLs of the backend", rec, err)
		d.passLinks(rec, rec.Copying, rec.CopyingCost)
	default:
		d.logCopyError(zap.WarnLevel, "cannot copy the results of a task yet", rec, err)
		d.release(rec, record.Jitter(copyRetry))
	}
}

// passLinks ends a task with the URLs of the backend. If a result has no URL, the caller cannot get
// it, and the task fails.
func (d *driver) passLinks(rec *record.Record, results []record.Media, cost backends.Cost) {
	if slices.ContainsFunc(results, func(one record.Media) bool { return one.URL == "" }) {
		d.applyClaimed(transition.Fail, transition.Change{Known: rec, Failure: record.NewError(backends.UpstreamError, "the result could not be fetched"), Cost: cost})
		return
	}
	d.succeed(rec, results, cost)
}

// succeed ends a claimed task with its results. If the task has failed in the meantime, the cost is a
// loss of the operator.
func (d *driver) succeed(rec *record.Record, results []record.Media, cost backends.Cost) {
	after, done := d.applyClaimed(transition.Succeed, transition.Change{Known: rec, Results: results, Cost: cost})
	if !done && after != nil {
		d.recordLoss(rec, cost)
	}
}

// recordLoss records that a backend succeeded after the task had failed.
func (d *driver) recordLoss(rec *record.Record, cost backends.Cost) {
	if _, done := d.applyClaimed(transition.Lose, transition.Change{Known: rec, Cost: cost}); done {
		d.counters.losses.Add(1)
		d.store.Log.Error("a backend succeeded after the task had failed: the operator pays for the job",
			zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
	}
}

// renewLease renews the claim of a long copy until stop is called. It cancels ctx if another engine
// has claimed the task.
func (d *driver) renewLease(rec *record.Record) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(d.store.Life)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(transition.LeaseFor / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			_, held, err := d.apply(ctx, transition.Renew, transition.Change{Known: rec})
			if err == nil && !held {
				cancel()
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}
