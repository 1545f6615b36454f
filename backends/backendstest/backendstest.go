// Package backendstest is the conformance suite for adapters of generation
// services. [Run] tests an adapter against a [MockService]. [CheckStatus] and
// [CheckError] check the rules that each status and error must follow for any
// answer of the service. [Jobs] implements most of a MockService. Only tests
// import this package. It imports package backends.
package backendstest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Op is the purpose of a request to a service.
type Op string

// The ops.
const (
	Submit Op = "submit"
	Poll   Op = "poll"
	Cancel Op = "cancel"
	Fetch  Op = "fetch"
	Other  Op = "other" // any other request of the adapter
)

// MockService simulates the vendor's service over HTTP. It accepts jobs, answers
// in the documented form of the vendor, and rejects a wrong credential. Its
// methods may be called concurrently.
type MockService interface {
	http.Handler

	// Op returns the purpose of a request.
	Op(r *http.Request) Op

	// Accepted returns the number of jobs that were accepted.
	Accepted() int

	// SetState puts all jobs into a state: Queued, Running, Succeeded with at
	// least one result, or Failed.
	SetState(state backends.State)

	// SetStatusWord makes the service report this word as the state of all
	// jobs. The empty word restores the words of the vendor.
	SetStatusWord(word string)

	// ForgetJobs makes the service answer that its jobs do not exist.
	ForgetJobs()
}

// ResultURLSetter is a mock service whose results are URLs.
type ResultURLSetter interface {
	// SetResultURL sets the URL of every result.
	SetResultURL(address string)
}

// Service is an adapter under test.
type Service struct {
	// Mock returns a new mock service.
	Mock func() MockService

	// Backend returns a new backend, provisioned for the service at this
	// address. It registers its own cleanup with t.
	Backend func(t *testing.T, address string) backends.Backend

	// Job is a job that the service accepts.
	Job backends.Job

	// Secret is the credential that Backend is provisioned with.
	Secret string

	// Content is the expected file of a finished job's first result, if the
	// backend is a Fetcher. Nil accepts any file.
	Content []byte
}

// Run runs the conformance suite for a service over HTTP.
func Run(t *testing.T, s Service) {
	for name, test := range map[string]func(*testing.T, *fixture){
		"a job is accepted once and reaches every state":                    testLifecycle,
		"concurrent submissions create one job each":                        testConcurrentSubmissions,
		"a reference is valid after a restart":                              testRestart,
		"the status of the answer decides the kind of a submission's error": testSubmissionOutcomes,
		"a submission whose connection drops is Unconfirmed":                testDroppedSubmission,
		"a submission that cannot connect is Busy":                          testUnreachable,
		"a submission with a malformed answer is Unconfirmed":               testMalformedSubmission,
		"a submission with any member changed has a valid outcome":          testMutatedSubmission,
		"a failed poll does not end the job":                                testPollOutcomes,
		"a poll with a malformed answer does not end the job":               testMalformedPoll,
		"a poll with any member changed returns a valid status":             testMutatedPoll,
		"an answer may repeat the request":                                  testEchoedRequest,
		"an unknown status word is reported as Unknown":                     testUnknownStatusWord,
		"a job that the service does not know is Gone":                      testUnknownJob,
		"result URLs are http or https":                                     testResultURLs,
		"a cancellation is confirmed":                                       testCancel,
		"a check reports whether the service is usable":                     testCheck,
		"results without a URL are streamed":                                testFetch,
		"an Unconfirmed submission is reconciled":                           testReconcile,
		"errors and failures do not contain the credential":                 testSecretNotRevealed,
		"the credential is sent to its own service only":                    testCredentialDestination,
		"each call returns within a second after its context ends":          testContextCancelled,
		"the caller does not see an error about the credential":             testWrongCredential,
		"a redirect is not followed":                                        testRedirects,
		"RetryAfter is set and limited":                                     testRetryAfter,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t, s))
		})
	}
}

// fixture is the state of one test: a mock service behind an HTTP server that
// can override its answers, and a backend for it.
type fixture struct {
	Service
	mock    MockService
	server  *httptest.Server
	backend backends.Backend

	mu        sync.Mutex
	overrides map[Op]overrideFunc
	received  map[Op]int // the number of requests
	jobs      int
}

// overrideFunc answers a request instead of the mock service.
type overrideFunc func(w http.ResponseWriter, r *http.Request, mock http.Handler)

func newFixture(t *testing.T, s Service) *fixture {
	t.Helper()
	f := &fixture{Service: s, mock: s.Mock(), overrides: make(map[Op]overrideFunc), received: make(map[Op]int)}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	f.backend = s.Backend(t, f.server.URL)
	return f
}

// ServeHTTP implements http.Handler.
func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := f.mock.Op(r)
	f.mu.Lock()
	f.received[op]++
	do := f.overrides[op]
	f.mu.Unlock()
	if do != nil {
		do(w, r, f.mock)
		return
	}
	f.mock.ServeHTTP(w, r)
}

// override makes do answer the requests of op instead of the mock; nil restores
// the mock.
func (f *fixture) override(op Op, do overrideFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.overrides[op] = do
}

// requests returns the number of requests for op.
func (f *fixture) requests(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received[op]
}

// job returns Job with a new token, because a service may accept a token only
// once.
func (f *fixture) job() backends.Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs++
	job := f.Job
	job.Token = backends.Token(fmt.Sprintf("job %d", f.jobs))
	return job
}

// submit submits a job and returns its reference. It fails the test if the job is
// not accepted.
func (f *fixture) submit(t *testing.T) backends.Ref {
	t.Helper()
	ref, err := f.backend.Submit(t.Context(), f.job())
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	return ref
}

// poll returns the status of a job. It fails the test if there is an error.
func (f *fixture) poll(t *testing.T, ref backends.Ref) backends.Status {
	t.Helper()
	status, err := f.backend.Poll(t.Context(), ref)
	if err != nil {
		t.Fatalf("poll: %v", err)
	}
	CheckStatus(t, status, f.Secret)
	return status
}

// wantError fails the test unless err is a valid error of one of these kinds. It
// never returns nil.
func (f *fixture) wantError(t *testing.T, call string, err error, kinds ...backends.Kind) *backends.Error {
	t.Helper()
	e := CheckError(t, err, f.Secret)
	if e == nil {
		t.Errorf("%s: the error is %v, want one of the kinds %v", call, err, kinds)
		return new(backends.Error)
	}
	if !slices.Contains(kinds, e.Kind) {
		t.Errorf("%s: the error is %v, want one of the kinds %v", call, e, kinds)
	}
	return e
}
