package task

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
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
func holdID(id string) journal.ID { return journal.IDOf("task", id) }

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

// sessionRecord is a session id in use, at tasksession/<key>/<hash>.
type sessionRecord struct {
	Key   string `json:"key"`
	Hash  string `json:"hash"`
	Task  string `json:"task"`
	Until int64  `json:"until"` // Unix milliseconds, half open
}

// idempotencyRecord is an idempotency key that was used, at taskclaim/<key>/<hash>. It
// is kept as long as its task.
type idempotencyRecord struct {
	Key         string     `json:"key"`
	Hash        string     `json:"hash"`
	Task        string     `json:"task"`
	Fingerprint journal.ID `json:"fingerprint"`
	Time        int64      `json:"time"` // Unix milliseconds
}

// CallbackState is where a callback stands.
type CallbackState string

// The states of a callback.
const (
	Undelivered CallbackState = "undelivered" // it is going to be sent, again or for the first time
	Delivered   CallbackState = "delivered"   // the receiver has acknowledged it
	Dead        CallbackState = "dead"        // it is given up
)

// eventRecord is the callback of a task, at event/<task>. What it says is in the
// record of the task, which does not change any more. Times are Unix
// milliseconds.
type eventRecord struct {
	Task    string        `json:"task"`
	Key     string        `json:"key"`
	User    string        `json:"user"`
	Created int64         `json:"created"`
	State   CallbackState `json:"state"`

	Attempts int    `json:"attempts,omitempty"` // of this round
	Sent     int    `json:"sent,omitempty"`     // in all
	Due      int64  `json:"due,omitempty"`      // of the next attempt
	Fence    int64  `json:"fence,omitempty"`    // of the last claim
	Owner    string `json:"owner,omitempty"`    // which engine has it

	Last    int64  `json:"last,omitempty"`    // time of the last attempt
	Status  int    `json:"status,omitempty"`  // what it was answered; zero: nothing
	Trouble string `json:"trouble,omitempty"` // why it was not delivered
	URL     string `json:"url,omitempty"`     // where it went
	Ended   int64  `json:"ended,omitempty"`
}

// eventID is the id of the callback of a task, the same at every attempt.
func eventID(task string) string { return "evt_" + strings.TrimPrefix(task, "task_") }

// readEvent returns the callback of a task; nil when there is none.
func readEvent(r storage.Reader, task string) (*eventRecord, error) { return events.Get(r, task) }

// Owner says whose tasks are asked for. The zero value has none.
type Owner struct{ key, user string }

// The owners. OfKey is for callers, OfUser for the console, Anyone for
// operators.
var Anyone = Owner{"*", "*"}

// OfKey owns the tasks that an API key has submitted.
func OfKey(id string) Owner { return Owner{key: id} }

// OfUser owns the tasks of all keys of a user.
func OfUser(id string) Owner { return Owner{user: id} }

// owns reports whether a task of this key and user is the owner's.
func (o Owner) owns(key, user string) bool {
	return o == Anyone || o.key != "" && o.key == key || o.user != "" && o.user == user
}

// price returns what results cost, at the prices of the submission. The hold bounds it.
func (r *record) price(results []result) money.Amount {
	parts := make([]catalog.Work, len(results))
	for i, m := range results {
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
