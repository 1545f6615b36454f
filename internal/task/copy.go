package task

import (
	"context"
	"io"
	"slices"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Keeper copies results into the gateway's own storage. A success is recorded
// only when the copies are there.
type Keeper interface {
	// Keep returns the links under which the results are kept, one for each, in
	// their order. It is called again after an error, also by another process,
	// and resumes; for what it has kept it returns the same links.
	Keep(ctx context.Context, k Keeping) ([]string, error)
}

// Keeping is what a [Keeper] copies.
type Keeping struct {
	Task      string
	Key       string
	User      string
	Backend   string // that has made the results
	MediaName string // as the caller wants it named; may be empty
	Results   []backends.Result

	// Fetch opens the result with an index of Results that has no URL. It is nil
	// where all have one.
	Fetch func(ctx context.Context, index int) (io.ReadCloser, backends.Content, error)
}

// copyResults copies the results of a job and ends its task.
func (d *driver) copyResults(b Backend, rec *record, results []result, cost backends.Cost) {
	e := d.engine
	keeper := e.config.Load().Keeper
	if keeper == nil {
		d.passLinks(rec, results, cost)
		return
	}
	select {
	case d.copying <- struct{}{}:
	default: // too many copies are under way: the job is polled again
		d.release(rec, interval(0, 0))
		return
	}
	mine, done := d.move(transitionCopy, change{known: rec, results: results, cost: cost})
	if !done {
		<-d.copying
		return
	}
	e.steps.Go(func() {
		defer func() { <-d.copying; d.nudge() }()
		d.keep(keeper, b, mine)
	})
}

// keep copies results and ends the task. A copy that fails is tried again until keepPatience is
// over.
func (d *driver) keep(keeper Keeper, b Backend, rec *record) {
	e := d.engine
	ctx, over := d.keepLease(rec)
	k := Keeping{Task: rec.ID, Key: rec.Key, User: rec.User, Backend: rec.Backend, MediaName: rec.MediaName, Results: backendResults(rec.Copying)}
	if fetcher, can := b.Backend.(backends.Fetcher); can {
		k.Fetch = func(ctx context.Context, index int) (io.ReadCloser, backends.Content, error) {
			return fetcher.Fetch(ctx, *rec.Ref, index)
		}
	}
	links, err := keeper.Keep(ctx, k)
	over()
	switch {
	case err == nil && len(links) == len(rec.Copying):
		kept := make([]result, len(links))
		for i, m := range rec.Copying {
			kept[i] = m
			kept[i].URL = links[i]
		}
		d.succeed(rec, kept, rec.CopyingCost)
	case e.life.Err() != nil:
	case e.now() >= rec.CopyingSince+keepPatience.Milliseconds():
		e.logCopyError(zap.ErrorLevel, "the results of a task cannot be copied", rec, err)
		d.passLinks(rec, rec.Copying, rec.CopyingCost)
	default:
		e.logCopyError(zap.WarnLevel, "the results of a task are not copied yet", rec, err)
		d.release(rec, jitter(keepAgain))
	}
}

// passLinks ends a task with the links of the backend. If one has no link, the caller cannot get
// it, and the task fails.
func (d *driver) passLinks(rec *record, results []result, cost backends.Cost) {
	if slices.ContainsFunc(results, func(one result) bool { return one.URL == "" }) {
		d.move(transitionFail, change{known: rec, failure: failure(backends.UpstreamError, "the result could not be fetched"), cost: cost})
		return
	}
	d.succeed(rec, results, cost)
}

// succeed ends a claimed task with its results. If the task has failed meanwhile, its cost is the
// operator's loss.
func (d *driver) succeed(rec *record, results []result, cost backends.Cost) {
	after, done := d.move(transitionSucceed, change{known: rec, results: results, cost: cost})
	if !done && after != nil {
		d.lose(rec, cost)
	}
}

// lose notes that a backend has succeeded after the task had failed.
func (d *driver) lose(rec *record, cost backends.Cost) {
	if _, done := d.move(transitionLose, change{known: rec, cost: cost}); done {
		d.engine.figures.losses.Add(1)
		d.engine.log.Error("a task succeeded after it had failed: its cost is the operator's loss",
			zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
	}
}
