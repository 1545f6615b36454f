package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

// markUnknown writes that the gateway does not know whether the backend has the job. The job is searched
// for after a pause.
func (d *driver) markUnknown(b Backend, rec *record.Record, pause time.Duration) {
	_, can := b.Backend.(backends.Reconciler)
	d.applyDurably(transition.MarkUnknown, transition.Change{Known: rec, Searchable: can, Pause: pause})
}

// reconcile searches for a job whose delivery is unknown.
func (d *driver) reconcile(b Backend, rec *record.Record) {
	r, can := b.Backend.(backends.Reconciler)
	if can {
		ref, err := d.findJob(r, rec)
		switch {
		case err == nil:
			d.noteAccepted(b, rec, ref)
			return
		case backends.KindOf(err) == backends.Gone:
			d.fail(rec, record.NewError(backends.UpstreamError, "the generation service did not receive the task"))
			return
		}
		d.logBackendError(zap.WarnLevel, "a task of unknown delivery cannot be searched for", rec, err)
	}
	if d.now() >= rec.UnknownSince+transition.Grace.Milliseconds() || rec.Searches+1 >= transition.MaxSearches {
		d.store.Log.Warn("the search for a task of unknown delivery ends: the service may have run the job, and charge for it",
			zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
		d.fail(rec, record.NewError(backends.UpstreamError, "the generation service did not confirm that it had accepted the task"))
		return
	}
	d.applyClaimed(transition.Search, transition.Change{Known: rec, Searchable: can})
}

// findJob calls Reconcile and converts a panic to an error.
func (d *driver) findJob(r backends.Reconciler, rec *record.Record) (ref backends.Ref, err error) {
	defer catchPanic(&err)
	job, err := d.job(d.store.Life, rec)
	if err != nil {
		return ref, err
	}
	ctx, cancel := context.WithTimeout(d.store.Life, pollTimeout)
	defer cancel()
	ref, err = r.Reconcile(ctx, job)
	if err == nil && ref.ID == "" {
		err = errNoReference
	}
	return ref, err
}

// errNoBody is the error of a task whose job is not stored any more.
var errNoBody = errors.New("the task has no body")

// job returns the job of a task. A job that is not enclosed in the record is stored until the task
// ends.
func (c *core) job(ctx context.Context, rec *record.Record) (job backends.Job, err error) {
	if rec.Enclosed {
		err = json.Unmarshal(rec.Body, &job)
		return job, err
	}
	err = c.store.View(ctx, func(r storage.Reader) error {
		found, err := storage.GetRecord(r, storage.Key(record.BodyPrefix, rec.ID), &job)
		if err == nil && !found {
			err = fmt.Errorf("task %s: %w", rec.ID, errNoBody)
		}
		return err
	})
	return job, err
}
