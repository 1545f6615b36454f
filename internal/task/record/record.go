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

// State is the state of a task. It only goes forward.
type State string

// The states (docs/reference/tasks.md#states). Callers see Pending for a queued
// task whose delivery is unknown; no record has it.
const (
	Queued     State = "queued"
	InProgress State = "in_progress"
	Success    State = "success"
	Failed     State = "failed"
	Pending    State = "pending"
)

// Delivery is the state of sending the job of a task to its backend.
type Delivery string

// The states of a delivery.
const (
	None     Delivery = "none"     // the job was never sent, or the backend was too busy to accept it
	Sending  Delivery = "sending"  // the job is being sent: the backend may have it
	Accepted Delivery = "accepted" // the backend has the job and returned a Ref
	Rejected Delivery = "rejected" // the backend refused the job
	Unknown  Delivery = "unknown"  // the backend may have the job
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

	// Body is the job as JSON. If it is short, it is enclosed here, so that the user can see
	// it as long as the task. Otherwise it is at taskbody/<id> until the task ends.
	Enclosed bool            `json:"enclosed,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`

	// Video is what was requested of a video at /v1/videos; nil: the task has another form.
	Video *VideoRequest `json:"video,omitempty"`

	Hold  money.Amount   `json:"hold,omitempty"`  // the maximum price, which is held
	Quote *catalog.Quote `json:"quote,omitempty"` // the price at submission; nil after the end
	Rule  string         `json:"rule,omitempty"`  // that of Quote, after the end

	Place int64 `json:"place"` // in the queue of the backend

	// A deferred task is outside the queue until Resume: its backend has refused it,
	// or its user is delayed. Refusals counts the refusals, BusyTimeout starts at
	// RefusedSince, and Refusal is the reason if the task fails.
	Resume       int64           `json:"resume,omitempty"`
	Refusals     int             `json:"refusals,omitempty"`
	RefusedSince int64           `json:"refused_since,omitempty"`
	Refusal      backends.Reason `json:"refusal,omitempty"`

	Due          int64  `json:"due,omitempty"`           // when the driver processes the task
	Fence        int64  `json:"fence,omitempty"`         // of the last claim
	Owner        string `json:"owner,omitempty"`         // engine of the last claim
	Lease        int64  `json:"lease,omitempty"`         // end of the last claim
	Woken        bool   `json:"woken,omitempty"`         // a poll was requested during the claim
	Attempt      int64  `json:"attempt,omitempty"`       // the fence when the job was sent last
	AcceptedAt   int64  `json:"accepted_at,omitempty"`   // when the backend accepted it
	UnknownSince int64  `json:"unknown_since,omitempty"` // since when the delivery is unknown
	Searches     int    `json:"searches,omitempty"`      // searches for the job since then
	Deadline     int64  `json:"deadline,omitempty"`      // when the task fails unless it has ended

	Ref                *backends.Ref `json:"ref,omitempty"`
	NoWebhook          bool          `json:"no_webhook,omitempty"`           // the backend sends no webhook for the job: Ref is not indexed
	Polled             int64         `json:"polled,omitempty"`               // time of the last poll
	Failing            int           `json:"failing,omitempty"`              // polls without an answer, in a row
	Gone               int64         `json:"gone,omitempty"`                 // since when the backend reports the job as not found
	UnknownStatus      string        `json:"unknown_status,omitempty"`       // the status of the backend, if the adapter does not know it
	UnknownStatusCount int           `json:"unknown_status_count,omitempty"` // polls that returned such a status
	Copying            []Media       `json:"copying,omitempty"`              // results that are being copied
	CopyingSince       int64         `json:"copying_since,omitempty"`        // since when they are being copied
	CopyingCost        backends.Cost `json:"copying_cost,omitzero"`

	Completed  int64         `json:"completed,omitempty"`
	Results    []Media       `json:"results,omitempty"`
	Failure    *Error        `json:"failure,omitempty"`
	Charged    money.Amount  `json:"charged,omitempty"`
	VendorCost backends.Cost `json:"vendor_cost,omitzero"` // recorded, never charged
	Loss       string        `json:"loss,omitempty"`       // why the operator pays for a job without a charge
	WatchUntil int64         `json:"watch_until,omitempty"`
	Event      bool          `json:"event,omitempty"`   // the outbox has or had a callback
	Deleted    int64         `json:"deleted,omitempty"` // when its caller deleted it: its API key does not see it any more

	written []byte // the encoding that was written last; nil after a read
}

// VideoRequest is the part of a submission to /v1/videos that its answers repeat, with the defaults
// of the model. It is in the record because the job may be too long to be kept.
type VideoRequest struct {
	Seconds float64 `json:"seconds,omitempty"`
	Size    string  `json:"size,omitempty"`     // such as 1280x720
	RemixOf string  `json:"remix_of,omitempty"` // the task whose video this one changes
}

// Error is why a task failed.
type Error struct {
	Code    string          `json:"code"` // "TASK_FAILED"
	Reason  backends.Reason `json:"reason"`
	Message string          `json:"message"`
}

// NewError returns the error of a failed task. It shortens the message as [backends.Text] does.
func NewError(reason backends.Reason, message string) *Error {
	return &Error{Code: "TASK_FAILED", Reason: reason, Message: backends.Text(message)}
}

// Failures that the gateway itself causes.
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

// MediaOf converts results for a record. It sets a duration that is not a positive number to
// zero, which means unknown.
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

// NewID returns a random task id: 26 characters of 5 bits.
func NewID() string { return "task_" + rand.Text() }

// HoldID returns the id of the hold of a task in the ledger.
func HoldID(id string) journal.ID { return journal.IDOf("task", id) }

// Over reports whether the task has ended. An unfinished task is either waiting for a slot or
// running.
func (r *Record) Over() bool    { return r.State == Success || r.State == Failed }
func (r *Record) Waiting() bool { return !r.Over() && r.Delivery == None }
func (r *Record) running() bool { return !r.Over() && r.Delivery != None }

// Deferred reports whether the task waits outside the queue, to be sent again later.
func (r *Record) Deferred() bool { return r.Waiting() && r.Resume != 0 }

// Fenced reports whether the claim of r is still the last one.
func (r *Record) Fenced(now *Record) bool { return now.Fence == r.Fence && now.Owner == r.Owner }

// Retryable reports whether an operator can retry the task: it does not wait for a slot.
func (r *Record) Retryable() bool { return r.running() || r.Deferred() }

// wrong returns the inconsistencies of a task.
func (r *Record) wrong() (wrong []string) {
	report := func(isWrong bool, format string, args ...any) {
		if isWrong {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	switch r.State {
	case Queued, InProgress, Success, Failed:
	default:
		report(true, "%q is not a state", r.State)
	}
	switch r.Delivery {
	case None, Sending, Accepted, Rejected, Unknown:
	default:
		report(true, "%q is not a delivery", r.Delivery)
	}
	report(r.Over() == (r.Completed == 0), "it is %s, and was completed at %d", r.State, r.Completed)
	report((r.State == Success) != (len(r.Results) > 0), "it is %s, and has %d results", r.State, len(r.Results))
	report((r.State == Failed) != (r.Failure != nil), "it is %s, and its failure is %v", r.State, r.Failure)
	report(!r.Over() && r.Due == 0, "it is %s, and is never due", r.State)
	report(!r.Over() && r.Deleted != 0, "it is %s, and was deleted", r.State)
	report(r.Resume != 0 && !r.Deferred(), "it is %s, and has a time to be sent again", r.State)
	report(!r.Over() && r.Delivery == Rejected, "it was refused, and is %s", r.State)
	report(r.Delivery == Accepted && r.Ref == nil, "it was accepted without a reference")
	report((r.State == InProgress || r.State == Success) && r.Delivery != Accepted, "it is %s, and its delivery is %s", r.State, r.Delivery)
	report(!r.Over() && r.Delivery == Accepted && r.Deadline > r.AcceptedAt+JobLife.Milliseconds(), "its deadline is more than %v after its acceptance", JobLife)
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
