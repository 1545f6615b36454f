// Package backends is what a generation service must be able to do to have
// tasks run there: take a job, and tell by its own reference what became of it.
// Adapters live below, each a guest module modelgate.backends.<adapter>.
//
// A third party adds a service as a Caddy module of its own in that namespace
// whose type is a [Backend]. The suite of package backendstest tells whether it
// keeps what is promised here; package wire holds the HTTP of adapters, which
// tells what is safe to send again from what is not.
package backends

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Backend is one configured generation service. Its methods are called by many
// goroutines at once. They return within a second of the end of their context,
// and bound their own time besides.
//
// A configuration that is replaced cleans its modules up (caddy.CleanerUpper)
// while calls are still under way, of which one may be followed by another: what
// a poll has found is fetched. Cleanup therefore lets go of what is idle, and
// breaks nothing: calls after it are answered as before.
type Backend interface {
	// Submit hands a job over, once: it sends no second submission, whatever the
	// first one comes to. What its error says about the job is its [Kind], and
	// one that is no [Error] is [Doubtful].
	Submit(ctx context.Context, job Job) (Ref, error)

	// Poll tells the state of a job. An error never tells it: the job is as it
	// was. One that is [Gone] says that the service does not know the job, or
	// not any more; once may be a fault on the way there, so that it counts when
	// it is said again and again.
	Poll(ctx context.Context, ref Ref) (Status, error)
}

// Canceler is a backend that can end a job early.
type Canceler interface {
	// Cancel returns nil when the service has confirmed that the job ends
	// without a result. [Refused] says that it runs on or is over.
	Cancel(ctx context.Context, ref Ref) error
}

// Fetcher is a backend that gives bytes for results without an address.
type Fetcher interface {
	// OnlyBytes tells whether no result ever has an address, so that a gateway
	// which keeps no media cannot use the backend.
	OnlyBytes() bool

	// Fetch opens the result with this index in [Status.Results]. The caller
	// closes it, and bounds how much is read. The context holds until then.
	Fetch(ctx context.Context, ref Ref, index int) (io.ReadCloser, Content, error)
}

// Content says what [Fetcher.Fetch] opens.
type Content struct {
	Type string // the media type; empty if it is not told
	Size int64  // in bytes; -1 if it is not told
}

// Reconciler is a backend that can find out what became of a submission that
// ended [Doubtful].
type Reconciler interface {
	// Reconcile returns the job with the token of this one. [Gone] says that
	// there surely is none, so that the task may fail at once; any other error,
	// that it is still not known. A service that takes a token only once may be
	// sent the job again, since either way there is one job.
	Reconcile(ctx context.Context, job Job) (Ref, error)
}

// Checker is a backend that can be asked, at no cost and without a job, whether
// its service would take one. A service that has no such question has no Checker:
// then only the next task tells.
type Checker interface {
	// Check returns nil when the service is there, is the one that the adapter
	// is for, and takes the credential. It only reads.
	Check(ctx context.Context) error
}

// Notified is a backend whose service calls an address of ours when a job has
// changed.
type Notified interface {
	// CheckHead returns an error for a call that Notice would refuse whatever its
	// body is, so that the body of such a call is not read: [ErrNoNotices] if no
	// secret is configured to check it by. n has no Body.
	CheckHead(n Notification) error

	// Notice returns the [Ref.ID] of the job that a call is about. It does no more
	// than wake the poll, and what the call says about the job is not believed.
	// An error refuses the call.
	Notice(n Notification) (id string, err error)
}

// ErrNoNotices is the error of CheckHead if the backend has no secret to check notices
// by.
var ErrNoNotices = errors.New("notices cannot be checked: no secret is configured for the backend")

// Notification is a request of the service, read whole.
type Notification struct {
	Method string
	Header http.Header
	Query  url.Values
	Body   []byte // at most 1 MiB, raw
	Now    time.Time
}

// Ref is how a service knows a job. It is written down with the task, and
// whatever configuration comes later, the job is asked for where it was sent.
type Ref struct {
	// ID is the service's own id of the job, as [IsID] allows.
	ID string `json:"id"`

	// Kind is how the job was submitted, in words of the adapter, where that
	// decides how it is asked for.
	Kind string `json:"kind,omitempty"`

	// Base is the address of the service at submission.
	Base string `json:"base,omitempty"`

	// Account is the fingerprint of the credential at submission. Another base
	// than that of today is asked only if the credential is still the same:
	// a new one is not sent to an old address.
	Account string `json:"account,omitempty"`

	// Links are addresses that the service named for this job, by the adapter's
	// word for each. They lie at Base.
	Links map[string]string `json:"links,omitempty"`
}

// IsID tells whether text can be a service's id of a job: 1 to 255 characters
// of printable ASCII, without a space.
func IsID(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return text != "" && len(text) <= 255
}

// tokenBytes is how much of the hash a token has: 160 bits.
const tokenBytes = 20

// Token returns the [Job.Token] of a task: 32 characters of [a-z2-7]. It
// is the same for one task at all times, and tells nothing of the task's id.
func Token(taskID string) string {
	sum := sha256.Sum256([]byte("modelgate backend token\x00" + taskID))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:tokenBytes]))
}
