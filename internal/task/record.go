package task

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// State is where a task stands. It goes forward only, and ends once.
type State string

// The states (docs/reference/tasks.md#states). Pending is what a queued task is
// shown as while its hand-over is in doubt; no record has it.
const (
	Queued     State = "queued"
	InProgress State = "in_progress"
	Success    State = "success"
	Failed     State = "failed"
	Pending    State = "pending"
)

// Handover is where the job of a task is.
type Handover string

// The places of a job.
const (
	None     Handover = "none"     // with us; it was never sent, or the backend was too busy to take it
	Sending  Handover = "sending"  // on its way: from now on it may be at the backend
	Accepted Handover = "accepted" // at the backend, which gave a Ref
	Refused  Handover = "refused"  // nowhere: the backend did not take it
	Doubt    Handover = "doubt"    // possibly at the backend
)

// record is a task at task/<id>. Times are Unix milliseconds; zero is none.
type record struct {
	ID      string           `json:"id"`
	Key     string           `json:"key"`
	User    string           `json:"user"`
	Backend string           `json:"backend"`
	Kind    backends.JobKind `json:"kind"`
	Model   string           `json:"model"`
	Created int64            `json:"created"`

	State    State    `json:"state"`
	Handover Handover `json:"handover"`
	Progress int      `json:"progress,omitempty"` // as the backend tells it, in percent

	SessionID      string `json:"session_id,omitempty"`
	SessionContext string `json:"session_context,omitempty"`
	MediaName      string `json:"media_name,omitempty"`
	Claim          string `json:"claim,omitempty"` // hash of the idempotency key

	// What the backend is asked for, as the JSON of a job. Where it is short it is
	// enclosed until the backend has the job; else it lies at taskbody/<id> until
	// the task is over.
	Enclosed bool            `json:"enclosed,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`

	Hold  money.Amount   `json:"hold,omitempty"`  // the greatest price, held
	Quote *catalog.Quote `json:"quote,omitempty"` // the price as it was at submission; nil when it is over

	Place int64 `json:"place"` // in the queue of the backend

	// A task that its backend has refused for now, or whose user is delayed there,
	// stands outside the queue until Resume. Refusals counts the refusals, RefusedSince is where [Backend.BusyTimeout]
	// begins, and Refusal is what the task says if it ends.
	Resume       int64           `json:"resume,omitempty"`
	Refusals     int             `json:"refusals,omitempty"`
	RefusedSince int64           `json:"refused_since,omitempty"`
	Refusal      backends.Reason `json:"refusal,omitempty"`

	Due      int64  `json:"due,omitempty"`      // when somebody must look at it
	Fence    int64  `json:"fence,omitempty"`    // of the last claim
	Owner    string `json:"owner,omitempty"`    // which engine has it
	Lease    int64  `json:"lease,omitempty"`    // until when that claim is held
	Woken    bool   `json:"woken,omitempty"`    // somebody asked for a look during a claim
	Attempt  int64  `json:"attempt,omitempty"`  // the fence under which the job was sent last
	Handed   int64  `json:"handed,omitempty"`   // when the backend accepted it
	Doubted  int64  `json:"doubted,omitempty"`  // since when the hand-over is in doubt
	Searches int    `json:"searches,omitempty"` // how often the job was looked for meanwhile
	Deadline int64  `json:"deadline,omitempty"` // when it has failed if it is not over

	Ref      *backends.Ref `json:"ref,omitempty"`
	Unheard  bool          `json:"unheard,omitempty"` // nobody calls when the job changes: nothing leads from Ref to it
	Polled   int64         `json:"polled,omitempty"`  // when the backend was asked last
	Failing  int           `json:"failing,omitempty"` // polls without an answer, in a row
	Gone     int64         `json:"gone,omitempty"`    // since when the backend says it knows no such job
	Word     string        `json:"word,omitempty"`    // that of the backend for the state, where we do not know it
	Strange  int           `json:"strange,omitempty"` // polls that were answered by such a word
	Made     []made        `json:"made,omitempty"`    // what the backend has made, not copied yet
	MadeAt   int64         `json:"made_at,omitempty"` // since when
	MadeCost backends.Cost `json:"made_cost,omitzero"`

	Completed  int64         `json:"completed,omitempty"`
	Results    []made        `json:"results,omitempty"`
	Failure    *Error        `json:"failure,omitempty"`
	Charged    money.Amount  `json:"charged,omitempty"`
	VendorCost backends.Cost `json:"vendor_cost,omitzero"` // recorded, never charged
	Loss       string        `json:"loss,omitempty"`       // what the operator pays for and nobody was charged
	WatchUntil int64         `json:"watch_until,omitempty"`
	Event      bool          `json:"event,omitempty"` // the outbox has or had a callback

	written []byte // this as it was written; nil of what was read
}

// made is one result as it is stored.
type made struct {
	URL      string             `json:"url,omitempty"`
	Type     backends.MediaType `json:"type,omitempty"`
	Duration float64            `json:"duration,omitempty"` // seconds
	Width    int                `json:"width,omitempty"`    // pixels
	Height   int                `json:"height,omitempty"`   // pixels
	Format   string             `json:"format,omitempty"`
}

// stored are results as records have them. A length that is none is not known: no
// record could be written with it.
func stored(results []backends.Result) []made {
	all := make([]made, len(results))
	for i, r := range results {
		if !(r.Duration > 0) || math.IsInf(r.Duration, 1) {
			r.Duration = 0
		}
		all[i] = made(r)
	}
	return all
}

func unstored(all []made) []backends.Result {
	results := make([]backends.Result, len(all))
	for i, m := range all {
		results[i] = backends.Result(m)
	}
	return results
}

// newID draws a task id: 26 characters of 5 bits.
func newID() string { return "task_" + rand.Text() }

// holdID names the hold of a task in the ledger.
func holdID(id string) ledger.ID { return ledger.IDOf("task", id) }

func (r *record) over() bool    { return r.State == Success || r.State == Failed }
func (r *record) waiting() bool { return !r.over() && r.Handover == None }
func (r *record) running() bool { return !r.over() && r.Handover != None }

// deferred tells whether the task waits outside the queue, to be tried again later.
func (r *record) deferred() bool { return r.waiting() && r.Resume != 0 }

// readTask returns a task; nil when there is none.
func readTask(r storage.Reader, id string) (*record, error) { return tasks.Get(r, id) }

// change reads a task, has fn change it, and writes it with all that follows
// from it. fn tells whether there is anything to write. The task is returned as
// it stands then; nil when there is none.
func change(t storage.Txn, id string, fn func(r *record) bool) (*record, error) {
	return changeKnown(t, &record{ID: id}, fn)
}

// changeKnown is [change] of a task that is known.
func changeKnown(t storage.Txn, known *record, fn func(r *record) bool) (*record, error) {
	before, err := tasks.Reread(t, known)
	if err != nil || before == nil {
		return nil, err
	}
	after := *before
	if !fn(&after) {
		return before, nil
	}
	return &after, replace(t, before, &after)
}

// replace writes a task in place of what it was, with every key that leads to it
// and everything that counts it. before is nil for a new task; after, for one
// that is removed.
func replace(t storage.Txn, before, after *record) error {
	if err := count(t, before, after); err != nil {
		return err
	}
	return write(t, before, after)
}

// write is [replace] without what counts tasks.
func write(t storage.Txn, before, after *record) error {
	if before != nil && !before.Enclosed && (after == nil || after.over() && !before.over()) {
		if err := t.Delete(storage.Key(bodyPrefix, before.ID)); err != nil {
			return err
		}
	}
	return tasks.Put(t, before, after)
}

// job returns what the backend of a task is asked for that it does not have yet.
func (e *Engine) job(ctx context.Context, rec *record) (job backends.Job, err error) {
	if rec.Enclosed {
		err = json.Unmarshal(rec.Body, &job)
		return job, err
	}
	err = e.view(ctx, func(r storage.Reader) error {
		found, err := storage.GetRecord(r, storage.Key(bodyPrefix, rec.ID), &job)
		if err == nil && !found {
			err = fmt.Errorf("task: %s has no body", rec.ID)
		}
		return err
	})
	return job, err
}

// milliseconds is how the times of records are written.
func milliseconds(t time.Time) int64 { return t.UnixMilli() }
