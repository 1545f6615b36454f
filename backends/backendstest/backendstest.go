// Package backendstest tests adapters of generation services against a mock of
// their service: see [Run]. [Sound] and [SoundError] check what holds for every
// status and error, whatever the service sent. Only tests import it; it imports
// backends.
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

// Op is what a request asks of a service.
type Op string

// The ops.
const (
	Submit Op = "submit"
	Poll   Op = "poll"
	Cancel Op = "cancel"
	Fetch  Op = "fetch"
	Other  Op = "other" // a look-up of the adapter's own
)

// Double is a small real service, which takes jobs and answers as its vendor
// does. It refuses a wrong credential.
type Double interface {
	http.Handler

	// Op tells what a request asks for.
	Op(r *http.Request) Op

	// Accepted is how many jobs have been taken.
	Accepted() int

	// Turn brings all jobs into a state: Queued, Running, Succeeded with one
	// result at least, or Failed.
	Turn(state backends.State)

	// Say makes the service use this word for the state of all jobs.
	Say(word string)

	// Forget makes the service know none of its jobs.
	Forget()
}

// Linker is a double whose results are links.
type Linker interface {
	// Link sets the address of every result.
	Link(address string)
}

// Service is an adapter under test.
type Service struct {
	// Double returns a new double.
	Double func() Double

	// Backend returns a new backend, provisioned for the service at this address.
	// The test ends it.
	Backend func(t *testing.T, address string) backends.Backend

	// Job is one that the service takes.
	Job backends.Job

	// Secret is the credential that Backend is provisioned with.
	Secret string

	// Content is what the bytes of a finished job's first result are, if the
	// backend is a Fetcher. Nil: any.
	Content []byte
}

// Run runs the conformance suite for a service over HTTP.
func Run(t *testing.T, s Service) {
	for name, test := range map[string]func(*testing.T, *stage){
		"a job is accepted once and walks to its end":           walk,
		"many at once are as many jobs":                         crowd,
		"a reference outlives its backend":                      restart,
		"a submission means what its answer says":               submissionOutcomes,
		"a submission that is cut is in doubt":                  cutSubmission,
		"a submission that reaches nobody is no job":            nobodyThere,
		"a submission answered with rubbish is in doubt":        rubbishSubmission,
		"a submission mutilated in any member is sound":         mutilatedSubmission,
		"a poll that fails tells nothing about the job":         pollOutcomes,
		"a poll answered with rubbish tells nothing":            rubbishPoll,
		"a poll mutilated in any member is sound":               mutilatedPoll,
		"an answer may repeat what was sent":                    repetition,
		"a word never heard tells nothing":                      unheardWord,
		"a job the service has forgotten is gone":               forgotten,
		"results are at http addresses":                         links,
		"a cancelled job is confirmed":                          cancels,
		"a check tells whether a job would be taken":            checks,
		"results that are bytes are streamed":                   fetches,
		"a doubtful submission is found again":                  reconciles,
		"the credential is in no error and no failure":          discretion,
		"the credential goes to its service only":               elsewhere,
		"no call outlives its context by a second":              givenUp,
		"a wrong credential is refused in words for operators":  wrongCredential,
		"a redirect is not followed":                            redirects,
		"a wait that the service asks for is handed on, capped": patience,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, s))
		})
	}
}

// stage is one test: a double behind a server that can be told to act, and a
// backend for it.
type stage struct {
	Service
	double  Double
	server  *httptest.Server
	backend backends.Backend

	mu   sync.Mutex
	acts map[Op]act
	seen map[Op]int
	jobs int
}

// act takes the place of the double for one op. It may pass the request on.
type act func(w http.ResponseWriter, r *http.Request, pass http.Handler)

func open(t *testing.T, s Service) *stage {
	t.Helper()
	g := &stage{Service: s, double: s.Double(), acts: make(map[Op]act), seen: make(map[Op]int)}
	g.server = httptest.NewServer(g)
	t.Cleanup(g.server.Close)
	g.backend = s.Backend(t, g.server.URL)
	return g
}

// ServeHTTP implements http.Handler.
func (g *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := g.double.Op(r)
	g.mu.Lock()
	g.seen[op]++
	do := g.acts[op]
	g.mu.Unlock()
	if do != nil {
		do(w, r, g.double)
		return
	}
	g.double.ServeHTTP(w, r)
}

// on puts an act in the place of the double for an op; nil takes it away.
func (g *stage) on(op Op, do act) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.acts[op] = do
}

// requests is how many requests for an op there were.
func (g *stage) requests(op Op) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[op]
}

// job returns the job with a token of its own: a service may take one once.
func (g *stage) job() backends.Job {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs++
	job := g.Job
	job.Token = backends.Token(fmt.Sprintf("job %d", g.jobs))
	return job
}

// submitted returns the reference of a job that was taken.
func (g *stage) submitted(t *testing.T) backends.Ref {
	t.Helper()
	ref, err := g.backend.Submit(t.Context(), g.job())
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	return ref
}

// polled returns the status of a job, which must be told.
func (g *stage) polled(t *testing.T, ref backends.Ref) backends.Status {
	t.Helper()
	status, err := g.backend.Poll(t.Context(), ref)
	if err != nil {
		t.Fatalf("poll: %v", err)
	}
	Sound(t, status, g.Secret)
	return status
}

// refusedAs checks that an error is sound and of one of these kinds.
func (g *stage) refusedAs(t *testing.T, what string, err error, kinds ...backends.Kind) *backends.Error {
	t.Helper()
	e := SoundError(t, err, g.Secret)
	if e == nil {
		t.Errorf("%s: got %v, want an error that is %v", what, err, kinds)
		return new(backends.Error)
	}
	if !slices.Contains(kinds, e.Kind) {
		t.Errorf("%s: is %v, want %v", what, e, kinds)
	}
	return e
}
