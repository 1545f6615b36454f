package task

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// State is where a task stands. It goes forward only, and ends once.
type State string

// The states (docs/reference/tasks.md#states). Pending is what a queued task is
// shown as while its delivery is unknown; no record has it.
const (
	Queued     State = "queued"
	InProgress State = "in_progress"
	Success    State = "success"
	Failed     State = "failed"
	Pending    State = "pending"
)

// Delivery is where the job of a task is.
type Delivery string

// The places of a job.
const (
	None     Delivery = "none"     // with us; it was never sent, or the backend was too busy to take it
	Sending  Delivery = "sending"  // on its way: from now on it may be at the backend
	Accepted Delivery = "accepted" // at the backend, which gave a Ref
	Rejected Delivery = "rejected" // nowhere: the backend did not take it
	Unknown  Delivery = "unknown"  // possibly at the backend
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
	Delivery Delivery `json:"delivery"`
	Progress int      `json:"progress,omitempty"` // as the backend reports it, in percent

	SessionID       string `json:"session_id,omitempty"`
	SessionContext  string `json:"session_context,omitempty"`
	MediaName       string `json:"media_name,omitempty"`
	IdempotencyHash string `json:"idempotency_hash,omitempty"` // hash of the idempotency key

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

	Due          int64  `json:"due,omitempty"`           // when the driver looks at it
	Fence        int64  `json:"fence,omitempty"`         // of the last claim
	Owner        string `json:"owner,omitempty"`         // which engine has it
	Lease        int64  `json:"lease,omitempty"`         // until when that claim is held
	Woken        bool   `json:"woken,omitempty"`         // another look was asked for during a claim
	Attempt      int64  `json:"attempt,omitempty"`       // the fence under which the job was sent last
	AcceptedAt   int64  `json:"accepted_at,omitempty"`   // when the backend accepted it
	UnknownSince int64  `json:"unknown_since,omitempty"` // since when the delivery is unknown
	Searches     int    `json:"searches,omitempty"`      // how often the job was looked for meanwhile
	Deadline     int64  `json:"deadline,omitempty"`      // when it has failed if it is not over

	Ref                *backends.Ref `json:"ref,omitempty"`
	NoWebhook          bool          `json:"no_webhook,omitempty"`           // the backend sends no webhook for the job: no index leads from Ref to it
	Polled             int64         `json:"polled,omitempty"`               // when the backend was asked last
	Failing            int           `json:"failing,omitempty"`              // polls without an answer, in a row
	Gone               int64         `json:"gone,omitempty"`                 // since when the backend says it knows no such job
	UnknownStatus      string        `json:"unknown_status,omitempty"`       // that of the backend for the state, where we do not know it
	UnknownStatusCount int           `json:"unknown_status_count,omitempty"` // polls that were answered by such a word
	Copying            []result      `json:"copying,omitempty"`              // what the backend has made, not copied yet
	CopyingSince       int64         `json:"copying_since,omitempty"`        // since when
	CopyingCost        backends.Cost `json:"copying_cost,omitzero"`

	Completed  int64         `json:"completed,omitempty"`
	Results    []result      `json:"results,omitempty"`
	Failure    *Error        `json:"failure,omitempty"`
	Charged    money.Amount  `json:"charged,omitempty"`
	VendorCost backends.Cost `json:"vendor_cost,omitzero"` // recorded, never charged
	Loss       string        `json:"loss,omitempty"`       // what the operator pays for without a charge
	WatchUntil int64         `json:"watch_until,omitempty"`
	Event      bool          `json:"event,omitempty"` // the outbox has or had a callback

	written []byte // this as it was written; nil of what was read
}

// result is one result as it is stored.
type result struct {
	URL      string             `json:"url,omitempty"`
	Type     backends.MediaType `json:"type,omitempty"`
	Duration float64            `json:"duration,omitempty"` // seconds
	Width    int                `json:"width,omitempty"`    // pixels
	Height   int                `json:"height,omitempty"`   // pixels
	Format   string             `json:"format,omitempty"`
}

// newResults are results as records have them. A length that is none is not known: no
// record could be written with it.
func newResults(results []backends.Result) []result {
	all := make([]result, len(results))
	for i, r := range results {
		if !(r.Duration > 0) || math.IsInf(r.Duration, 1) {
			r.Duration = 0
		}
		all[i] = result(r)
	}
	return all
}

func backendResults(all []result) []backends.Result {
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
func (r *record) waiting() bool { return !r.over() && r.Delivery == None }
func (r *record) running() bool { return !r.over() && r.Delivery != None }

// deferred reports whether the task waits outside the queue, to be tried again later.
func (r *record) deferred() bool { return r.waiting() && r.Resume != 0 }

// readTask returns a task; nil when there is none.
func readTask(r storage.Reader, id string) (*record, error) { return tasks.Get(r, id) }

// readable returns the task to which an index key leads; nil if there is none, or if it cannot be
// read: then the error is added to unread.
func readable(r storage.Reader, key []byte, unread *[]error) (*record, error) {
	rec, err := readTask(r, lastID(key))
	if errors.Is(err, storage.ErrUnreadable) {
		*unread = append(*unread, err)
		return nil, nil
	}
	return rec, err
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
