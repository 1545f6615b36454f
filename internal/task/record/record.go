package record

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
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

// Record is a task at task/<id>. Times are Unix milliseconds; zero is none.
type Record struct {
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
	UnknownStatusCount int           `json:"unknown_status_count,omitempty"` // polls that were answered by such a status
	Copying            []Media       `json:"copying,omitempty"`              // what the backend has made, not copied yet
	CopyingSince       int64         `json:"copying_since,omitempty"`        // since when
	CopyingCost        backends.Cost `json:"copying_cost,omitzero"`

	Completed  int64         `json:"completed,omitempty"`
	Results    []Media       `json:"results,omitempty"`
	Failure    *Error        `json:"failure,omitempty"`
	Charged    money.Amount  `json:"charged,omitempty"`
	VendorCost backends.Cost `json:"vendor_cost,omitzero"` // recorded, never charged
	Loss       string        `json:"loss,omitempty"`       // what the operator pays for without a charge
	WatchUntil int64         `json:"watch_until,omitempty"`
	Event      bool          `json:"event,omitempty"` // the outbox has or had a callback

	written []byte // this as it was written; nil of what was read
}

// Error is why a task failed.
type Error struct {
	Code    string          `json:"code"` // "TASK_FAILED"
	Reason  backends.Reason `json:"reason"`
	Message string          `json:"message"`
}

// NewError returns why a task failed, with at most as much of the message as callers are shown.
func NewError(reason backends.Reason, message string) *Error {
	return &Error{Code: "TASK_FAILED", Reason: reason, Message: backends.Text(message)}
}

// The failures that no backend reports.
var (
	TimedOut  = NewError(backends.TaskTimeout, "the task was not finished in time")
	Cancelled = NewError(backends.TaskCancelled, "the task was cancelled")
)

// Media is one result as it is stored.
type Media struct {
	URL      string             `json:"url,omitempty"`
	Type     backends.MediaType `json:"type,omitempty"`
	Duration float64            `json:"duration,omitempty"` // seconds
	Width    int                `json:"width,omitempty"`    // pixels
	Height   int                `json:"height,omitempty"`   // pixels
	Format   string             `json:"format,omitempty"`
}

// MediaOf returns results as records have them. A length that is none is not known: no
// record could be written with it.
func MediaOf(results []backends.Result) []Media {
	all := make([]Media, len(results))
	for i, r := range results {
		if !(r.Duration > 0) || math.IsInf(r.Duration, 1) {
			r.Duration = 0
		}
		all[i] = Media(r)
	}
	return all
}

// BackendResults is the reverse of MediaOf.
func BackendResults(all []Media) []backends.Result {
	results := make([]backends.Result, len(all))
	for i, m := range all {
		results[i] = backends.Result(m)
	}
	return results
}

// NewID draws a task id: 26 characters of 5 bits.
func NewID() string { return "task_" + rand.Text() }

// HoldID names the hold of a task in the ledger.
func HoldID(id string) journal.ID { return journal.IDOf("task", id) }

// Over, Waiting and running tell where a task stands. One that is not over waits for a slot, or has
// one.
func (r *Record) Over() bool    { return r.State == Success || r.State == Failed }
func (r *Record) Waiting() bool { return !r.Over() && r.Delivery == None }
func (r *Record) running() bool { return !r.Over() && r.Delivery != None }

// Deferred reports whether the task waits outside the queue, to be tried again later.
func (r *Record) Deferred() bool { return r.Waiting() && r.Resume != 0 }

// Fenced reports whether the claim of r is still the last one.
func (r *Record) Fenced(now *Record) bool { return now.Fence == r.Fence && now.Owner == r.Owner }

// Retryable reports whether an operator can have the task looked at: it does not wait for a slot.
func (r *Record) Retryable() bool { return r.running() || r.Deferred() }

// wrong returns what in a task contradicts itself.
func (r *Record) wrong() (wrong []string) {
	tell := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	switch r.State {
	case Queued, InProgress, Success, Failed:
	default:
		tell(true, "%q is no state", r.State)
	}
	switch r.Delivery {
	case None, Sending, Accepted, Rejected, Unknown:
	default:
		tell(true, "%q is no delivery", r.Delivery)
	}
	tell(r.Over() == (r.Completed == 0), "it is %s, and was completed at %d", r.State, r.Completed)
	tell((r.State == Success) != (len(r.Results) > 0), "it is %s, and has %d results", r.State, len(r.Results))
	tell((r.State == Failed) != (r.Failure != nil), "it is %s, and why it failed is %v", r.State, r.Failure)
	tell(!r.Over() && r.Due == 0, "it is %s, and no driver will look at it", r.State)
	tell(r.Resume != 0 && !r.Deferred(), "it is %s, and to be tried again", r.State)
	tell(!r.Over() && r.Delivery == Rejected, "it was refused, and is %s", r.State)
	tell(r.Delivery == Accepted && r.Ref == nil, "it was accepted without a reference")
	tell((r.State == InProgress || r.State == Success) && r.Delivery != Accepted, "it is %s, and its delivery is %s", r.State, r.Delivery)
	tell(!r.Over() && r.Delivery == Accepted && r.Deadline > r.AcceptedAt+JobLife.Milliseconds(), "it has more than a day at its backend")
	return wrong
}

// Session is a session id in use, at tasksession/<key>/<hash>.
type Session struct {
	Key   string `json:"key"`
	Hash  string `json:"hash"`
	Task  string `json:"task"`
	Until int64  `json:"until"` // Unix milliseconds, half open
}

// IdempotencyRecord is an idempotency key that was used, at taskclaim/<key>/<hash>. It
// is kept as long as its task.
type IdempotencyRecord struct {
	Key         string     `json:"key"`
	Hash        string     `json:"hash"`
	Task        string     `json:"task"`
	Fingerprint journal.ID `json:"fingerprint"`
	Time        int64      `json:"time"` // Unix milliseconds
}
