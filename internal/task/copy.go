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
	// keepPatience is how long copying may fail before the task ends with the links of the backend
	// (docs/reference/tasks.md#files), and keepAgain the pause after a failure.
	keepPatience = time.Hour
	keepAgain    = 15 * time.Second
)

// copyResults copies the results of a job and ends its task.
func (d *driver) copyResults(b Backend, rec *record.Record, results []record.Media, cost backends.Cost) {
	keeper := d.config.Load().Keeper
	if keeper == nil {
		d.passLinks(rec, results, cost)
		return
	}
	if !d.copies.TryAcquire() { // too many copies are under way: the job is polled again
		d.release(rec, transition.Interval(0, 0))
		return
	}
	mine, done := d.move(transition.Copy, transition.Change{Known: rec, Results: results, Cost: cost})
	if !done {
		d.copies.Release()
		return
	}
	d.store.Steps.Go(func() {
		defer func() { d.copies.Release(); d.Nudge() }()
		d.keep(keeper, b, mine)
	})
}

// keep copies results and ends the task. A copy that fails is tried again until keepPatience is
// over.
func (d *driver) keep(keeper Keeper, b Backend, rec *record.Record) {
	ctx, over := d.keepLease(rec)
	k := Keeping{Task: rec.ID, Key: rec.Key, User: rec.User, Backend: rec.Backend, MediaName: rec.MediaName, Results: record.BackendResults(rec.Copying)}
	if fetcher, can := b.Backend.(backends.Fetcher); can {
		k.Fetch = func(ctx context.Context, index int) (io.ReadCloser, backends.Content, error) {
			return fetcher.Fetch(ctx, *rec.Ref, index)
		}
	}
	links, err := keeper.Keep(ctx, k)
	over()
	switch {
	case err == nil && len(links) == len(rec.Copying):
		kept := make([]record.Media, len(links))
		for i, m := range rec.Copying {
			kept[i] = m
			kept[i].URL = links[i]
		}
		d.succeed(rec, kept, rec.CopyingCost)
	case d.store.Life.Err() != nil:
	case d.now() >= rec.CopyingSince+keepPatience.Milliseconds():
		d.logCopyError(zap.ErrorLevel, "the results of a task cannot be copied", rec, err)
		d.passLinks(rec, rec.Copying, rec.CopyingCost)
	default:
		d.logCopyError(zap.WarnLevel, "the results of a task are not copied yet", rec, err)
		d.release(rec, record.Jitter(keepAgain))
	}
}

// passLinks ends a task with the links of the backend. If one has no link, the caller cannot get
// it, and the task fails.
func (d *driver) passLinks(rec *record.Record, results []record.Media, cost backends.Cost) {
	if slices.ContainsFunc(results, func(one record.Media) bool { return one.URL == "" }) {
		d.move(transition.Fail, transition.Change{Known: rec, Failure: record.NewError(backends.UpstreamError, "the result could not be fetched"), Cost: cost})
		return
	}
	d.succeed(rec, results, cost)
}

// succeed ends a claimed task with its results. If the task has failed meanwhile, its cost is the
// operator's loss.
func (d *driver) succeed(rec *record.Record, results []record.Media, cost backends.Cost) {
	after, done := d.move(transition.Succeed, transition.Change{Known: rec, Results: results, Cost: cost})
	if !done && after != nil {
		d.lose(rec, cost)
	}
}

// lose notes that a backend has succeeded after the task had failed.
func (d *driver) lose(rec *record.Record, cost backends.Cost) {
	if _, done := d.move(transition.Lose, transition.Change{Known: rec, Cost: cost}); done {
		d.counters.losses.Add(1)
		d.store.Log.Error("a task succeeded after it had failed: its cost is the operator's loss",
			zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
	}
}

// keepLease renews the claim of a long copy until over is called. It ends the context if another
// engine has claimed the task.
func (d *driver) keepLease(rec *record.Record) (ctx context.Context, over func()) {
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
