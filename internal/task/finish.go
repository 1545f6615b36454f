package task

import (
	"context"
	"io"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Keeper copies results into the gateway's own storage. A success is recorded
// only when the copies are there.
type Keeper interface {
	// Keep returns the links under which the results are kept, one for each, in
	// their order. It is called again after an error, also by another process,
	// and resumes; for what it has kept it returns the same links.
	Keep(ctx context.Context, k Keeping) ([]string, error)
}

// Keeping is what a [Keeper] is to copy.
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

// keepPatience is how long a copy may fail before the task ends without it
// (docs/reference/tasks.md#files).
const keepPatience = time.Hour

// keepAgain is how long after a failure a copy is tried again.
const keepAgain = 15 * time.Second

// outcome is how a task ends.
type outcome struct {
	state    State // Success or Failed
	handover Handover
	results  []made
	failure  *Error
	cost     backends.Cost
	watch    int64                // until when the job is watched, Unix milliseconds
	by       string               // who has ended it, for the audit; empty: nobody who is told of there
	only     func(r *record) bool // holds for the task as it stands, else nothing happens
}

// deliver ends a task that has succeeded, when its results are copied.
func (d *driver) deliver(b Backend, rec *record, results []made, cost backends.Cost) {
	e := d.engine
	keeper := e.config.Load().Keeper
	if keeper == nil {
		d.handLinks(rec, results, cost)
		return
	}
	select {
	case d.copying <- struct{}{}:
	default: // all hands are full; it is asked again then
		d.release(rec, func(r *record) int64 { return e.now() + interval(0, 0).Milliseconds() })
		return
	}
	var mine *record
	err := e.update(e.life, func(t storage.Txn) error {
		have, err := changeKnown(t, rec, func(r *record) bool {
			if !rec.fenced(r) || r.over() {
				return false
			}
			if r.MadeAt == 0 {
				r.MadeAt = e.now()
			}
			r.State, r.Progress, r.Polled = InProgress, 99, e.now()
			r.Made, r.MadeCost = results, cost
			r.Lease = e.now() + leaseFor.Milliseconds()
			r.Due = r.Lease
			return true
		})
		mine = have
		return err
	})
	if err != nil || mine == nil || !rec.fenced(mine) || mine.over() {
		<-d.copying
		return
	}
	e.changed(rec, mine)
	e.steps.Go(func() {
		defer func() { <-d.copying; d.nudge() }()
		d.keep(keeper, b, mine)
	})
}

// keep copies results and ends the task. A copy that fails is tried again for a
// while.
func (d *driver) keep(keeper Keeper, b Backend, rec *record) {
	e := d.engine
	ctx, over := d.keepLease(rec)
	k := Keeping{Task: rec.ID, Key: rec.Key, User: rec.User, Backend: rec.Backend, MediaName: rec.MediaName, Results: unstored(rec.Made)}
	if fetcher, can := b.Backend.(backends.Fetcher); can {
		k.Fetch = func(ctx context.Context, index int) (io.ReadCloser, backends.Content, error) {
			return fetcher.Fetch(ctx, *rec.Ref, index)
		}
	}
	links, err := keeper.Keep(ctx, k)
	over()
	switch {
	case err == nil && len(links) == len(rec.Made):
		kept := make([]made, len(links))
		for i, m := range rec.Made {
			kept[i] = m
			kept[i].URL = links[i]
		}
		d.finish(rec, outcome{state: Success, results: kept, cost: rec.MadeCost, only: rec.fenced})
	case e.life.Err() != nil:
	case e.now() >= rec.MadeAt+keepPatience.Milliseconds():
		e.unkept(zap.ErrorLevel, "the results of a task cannot be copied", rec, err)
		d.handLinks(rec, rec.Made, rec.MadeCost)
	default:
		e.unkept(zap.WarnLevel, "the results of a task are not copied yet", rec, err)
		d.release(rec, func(*record) int64 { return e.now() + jitter(keepAgain).Milliseconds() })
	}
}

// handLinks ends a task with the links of the backend. One that gives none has
// made nothing that the caller can have.
func (d *driver) handLinks(rec *record, results []made, cost backends.Cost) {
	o := outcome{state: Success, results: results, cost: cost, only: rec.fenced}
	for _, m := range results {
		if m.URL == "" {
			o = outcome{state: Failed, failure: failure(backends.UpstreamError, "the result could not be fetched"), cost: cost, only: rec.fenced}
		}
	}
	d.finish(rec, o)
}

// finish ends a task, if o.only still holds for it: its state, its money and its
// callback change in one transaction. A task that is over stays as it is; a
// success that comes too late is noted as the operator's loss.
func (e *Engine) finish(ctx context.Context, rec *record, o outcome) (after *record, err error) {
	config := e.config.Load()
	var lost, over bool
	var told *identity.Event
	err = e.ledger.Update(ctx, rec.User, nil, func(t *ledger.Txn) error {
		lost, over, told = false, false, nil
		have, err := tasks.Reread(t, rec)
		if after = have; err != nil || have == nil {
			return err
		}
		if have.over() {
			if lost = have.State == Failed && o.state == Success && have.Loss == ""; lost {
				late := *have
				late.Loss, late.VendorCost = "the backend succeeded after the task had failed", o.cost
				after = &late
				return replace(t, have, &late)
			}
			return nil
		}
		if !o.only(have) {
			return nil
		}
		next := *have
		if err := e.settle(t, config, &next, o); err != nil {
			return err
		}
		after, over = &next, true
		if o.by != "" {
			told = &identity.Event{Actor: o.by, Action: "task.cancel", User: next.User, Key: next.Key, Detail: next.ID}
			if err := identity.Record(ctx, t, e.store.Now(), told); err != nil {
				return err
			}
		}
		return replace(t, have, &next)
	})
	if err != nil {
		return nil, err
	}
	if told != nil {
		e.opts.Told(*told)
	}
	if over {
		e.figures.count(after)
	}
	if lost {
		e.figures.losses.Add(1)
		e.log.Error("a task succeeded after it had failed: its cost is the operator's loss",
			zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
	}
	if after != nil && after.over() {
		e.ended(after)
	}
	return after, nil
}

// settle brings a task to its end, in the transaction that writes it.
func (e *Engine) settle(t storage.Txn, config *config, r *record, o outcome) error {
	now := e.store.Now()
	r.State, r.Completed = o.state, milliseconds(now)
	r.Fence++ // what comes of a look under way does not count any more
	r.Results, r.Failure, r.VendorCost = o.results, o.failure, o.cost
	r.Made, r.MadeAt, r.MadeCost = nil, 0, backends.Cost{}
	r.Due, r.Lease, r.Woken, r.Resume, r.WatchUntil = 0, 0, false, 0, o.watch
	if o.watch != 0 {
		r.Due = milliseconds(now.Add(watchEvery))
	}
	if o.handover != "" {
		r.Handover = o.handover
	}
	if r.Hold > 0 {
		var cost money.Amount
		if r.State == Success {
			cost = r.price()
		}
		var err error
		if r.Charged, err = ledger.EndHold(t, now, r.usage(), holdID(r.ID), cost); err != nil {
			return err
		}
	}
	r.Quote, r.Body = nil, nil
	return e.announce(t, config, r)
}

// usage is where the charge of a task counts.
func (r *record) usage() ledger.Usage {
	return ledger.Usage{User: r.User, Key: r.Key, Model: r.Model}
}

// price is what was delivered costs, by the price as it was at submission. It is
// never more than is held.
func (r *record) price() money.Amount {
	parts := make([]catalog.Work, len(r.Results))
	for i, m := range r.Results {
		parts[i].Count = 1
		if m.Duration > 0 && m.Duration <= float64(catalog.MaxSeconds/catalog.Second) {
			parts[i].Duration = catalog.Seconds(math.Round(m.Duration * float64(catalog.Second)))
		}
		if resolution, common := catalog.ResolutionOf(m.Width, m.Height); common && r.Quote.Kind == catalog.Video {
			parts[i].Resolution = resolution
		}
	}
	return max(0, r.Quote.Cost(parts...))
}

// ended tells everybody who waits for the end of a task.
func (e *Engine) ended(rec *record) {
	e.cache.put(rec)
	e.watch.tell(rec.ID)
	e.nudge(rec.Backend)
	if rec.Event {
		e.mu.Lock()
		s := e.sender
		e.mu.Unlock()
		if s != nil {
			s.due(rec.User, rec.Key, rec.Completed)
		}
	}
}

// changed tells those who wait for a change of a task that is not over, if it is shown
// in another way than before.
func (e *Engine) changed(before, after *record) {
	if before.status() != after.status() || before.progress() != after.progress() {
		e.watch.tell(after.ID)
	}
	e.nudgeBy(after.Backend, after.Due)
}
