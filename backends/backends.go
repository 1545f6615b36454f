// Package backends defines the interface between the gateway and the services
// that generate images and videos. A service accepts a job, and reports its
// state under a reference.
//
// An adapter implements [Backend] and, if its service supports them, [Canceler],
// [Fetcher], [Reconciler], [Checker] and [Notified]. It receives a [Job], returns
// a [Ref] and a [Status], and reports errors as [Error]. The [Kind] of an error
// says what it means for the job. Each adapter is a Caddy module
// modelgate.backends.<adapter>, in a package below this one or of a third
// party: see docs/backends.md. Package backendstest tests adapters; package
// wire sends their HTTP requests and classifies the errors. The only package of
// this module that package backends imports is egress.
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

// Backend is one configured generation service. Its methods may be called
// concurrently. They return within a second after their context ends, and limit
// their own time as well.
//
// Caddy calls Cleanup (caddy.CleanerUpper) when a configuration is replaced, while calls are
// still running. A running call may lead to another one: after a poll reports success, the
// result is fetched. Cleanup must therefore only release idle resources, and later calls must
// still work.
type Backend interface {
	// Submit submits a job. It sends at most one submission, also after an
	// error. The [Kind] of its error says whether there may be a job. An error
	// that is not an [Error] is [Unconfirmed].
	Submit(ctx context.Context, job Job) (Ref, error)

	// Poll returns the state of a job. After an error the state is unchanged.
	// [Gone] means that the service does not know the job. The gateway acts only
	// on repeated answers of this kind, because a single one may be an error of a
	// proxy.
	Poll(ctx context.Context, ref Ref) (Status, error)
}

// Canceler is a backend that can end a job early.
type Canceler interface {
	// Cancel returns nil if the service has confirmed that the job ends without
	// a result. [Refused] means that the job continues or has ended.
	Cancel(ctx context.Context, ref Ref) error
}

// Remixer is a backend that can change a video that it has made.
type Remixer interface {
	// Remix is Submit for a job that changes the result of an earlier job, by its
	// prompt. The other fields of the job are those that the earlier one had, and
	// determine the price. If the service cannot make such a result, Remix refuses.
	Remix(ctx context.Context, source Ref, job Job) (Ref, error)
}

// Fetcher is a backend that returns the bytes of results that have no URL.
type Fetcher interface {
	// OnlyBytes reports whether no result ever has a URL. A gateway that keeps
	// no media cannot use such a backend.
	OnlyBytes() bool

	// Fetch opens the result with this index in [Status.Results]. The caller
	// closes it and limits how much it reads. The context remains valid until
	// the result is closed.
	Fetch(ctx context.Context, ref Ref, index int) (io.ReadCloser, Content, error)
}

// Content describes what [Fetcher.Fetch] opens.
type Content struct {
	Type string // the media type; empty if unknown
	Size int64  // in bytes; -1 if unknown
}

// Reconciler is a backend that can find the outcome of an [Unconfirmed] submission.
type Reconciler interface {
	// Reconcile returns the reference of the service's job with the token of
	// job. [Gone] means that there is certainly no such job, so the task may
	// fail at once. After any other error the outcome is still unknown. If a
	// service accepts a token only once, Reconcile may send the job again,
	// because there is one job in either case.
	Reconcile(ctx context.Context, job Job) (Ref, error)
}

// Checker is a backend that can check whether its service would accept a job,
// without a job and without cost. If a service has no request for that, its
// adapter is not a Checker, and only the next task shows an error.
type Checker interface {
	// Check returns nil if the service is reachable, is of the kind that the
	// adapter expects, and accepts the credential. It only reads.
	Check(ctx context.Context) error
}

// Notified is a backend whose service calls the gateway when a job has changed.
type Notified interface {
	// CheckHead returns an error for a call that Notice would reject with any
	// body, so that the body is not read. It returns [ErrNoNotices] if no secret
	// is configured. n has no Body.
	CheckHead(n Notification) error

	// Notice returns the [Ref.ID] of the job that a call concerns. The call
	// only triggers a poll; its other content is not trusted. An error rejects
	// the call.
	Notice(n Notification) (id string, err error)
}

// ErrNoNotices is the error of CheckHead if the backend has no secret to verify
// notices.
var ErrNoNotices = errors.New("notices cannot be checked: no secret is configured for the backend")

// Notification is a request of the service with its whole body.
type Notification struct {
	Method string
	Header http.Header
	Query  url.Values
	Body   []byte // as received, at most 1 MiB
	Now    time.Time
}

// Ref identifies a job at its service. It is stored with the task, so that a
// job is polled where it was submitted, even after the configuration changes.
type Ref struct {
	// ID is the service's id of the job, in the form of [IsID].
	ID string `json:"id"`

	// Kind is how the job was submitted, if polling depends on it. The adapter
	// defines the values.
	Kind string `json:"kind,omitempty"`

	// Base is the address of the service at submission.
	Base string `json:"base,omitempty"`

	// Account is the fingerprint of the credential at submission. If Base is not the
	// configured address, the job is polled only if the credential is unchanged. A new
	// credential is never sent to an old address.
	Account string `json:"account,omitempty"`

	// Links are URLs that the service returned for this job. The adapter
	// chooses the keys. The URLs are below Base.
	Links map[string]string `json:"links,omitempty"`
}

// IsID reports whether text can be a service's id of a job: 1 to 255 characters
// of printable ASCII without spaces.
func IsID(text string) bool {
	return text != "" && len(text) <= 255 && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

// tokenBytes is how many bytes of the hash a token contains: 160 bits.
const tokenBytes = 20

// Token returns the [Job.Token] of a task: 32 characters of [a-z2-7]. It is
// always the same for one task and does not reveal the task's id.
func Token(taskID string) string {
	sum := sha256.Sum256([]byte("modelgate backend token\x00" + taskID))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:tokenBytes]))
}
