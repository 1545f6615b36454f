package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/storage"
)

// mockService is a generation service. An accepted job exists even if the gateway does not get
// the answer.
type mockService struct {
	mu    sync.Mutex
	jobs  map[string]*work // by token
	order []string         // tokens in the order of acceptance
	polls map[string]int   // by token

	submit      func(job backends.Job) error                // result before the acceptance; nil: accepted
	afterAccept func(job backends.Job) error                // result after the acceptance
	poll        func(j *work) (backends.Status, error)      // nil: the status of the job
	cancel      func(j *work) error                         // nil: the job ends
	find        func(j *work) (backends.Ref, error)         // nil: the job is found
	hold        func(ctx context.Context, job backends.Job) // called during a submission
}

// work is a job at the mock service.
type work struct {
	token     string
	accepted  int // number of acceptances
	status    backends.Status
	cancelled bool
}

func newMockService() *mockService {
	return &mockService{jobs: make(map[string]*work), polls: make(map[string]int)}
}

func (s *mockService) Submit(ctx context.Context, job backends.Job) (backends.Ref, error) {
	s.mu.Lock()
	hold, submit, afterAccept := s.hold, s.submit, s.afterAccept
	s.mu.Unlock()
	if hold != nil {
		hold(ctx, job)
	}
	if submit != nil {
		if err := submit(job); err != nil {
			return backends.Ref{}, err
		}
	}
	s.mu.Lock()
	j := s.jobs[job.Token]
	if j == nil {
		j = &work{token: job.Token, status: backends.Status{State: backends.Running, Progress: 50}}
		s.jobs[job.Token] = j
	}
	j.accepted++
	s.order = append(s.order, job.Token)
	s.mu.Unlock()
	if afterAccept != nil {
		if err := afterAccept(job); err != nil {
			return backends.Ref{}, err
		}
	}
	return backends.Ref{ID: "job-" + job.Token}, nil
}

func (s *mockService) Poll(_ context.Context, ref backends.Ref) (backends.Status, error) {
	s.mu.Lock()
	j := s.jobs[strings.TrimPrefix(ref.ID, "job-")]
	if j == nil {
		s.mu.Unlock()
		return backends.Status{}, &backends.Error{Kind: backends.Gone}
	}
	s.polls[j.token]++
	poll, status := s.poll, j.status
	s.mu.Unlock()
	if poll != nil {
		return poll(j)
	}
	return status, nil
}

// CheckHead implements [backends.Notified].
func (s *mockService) CheckHead(backends.Notification) error { return nil }

// Notice implements [backends.Notified]: the body is the id of a job.
func (s *mockService) Notice(n backends.Notification) (string, error) { return string(n.Body), nil }

// silent is a backend that sends no webhooks.
type silent struct{ backends.Backend }

// set changes the behaviour of the service.
func (s *mockService) set(change func(s *mockService)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// setStatus sets the status of the job of a task.
func (s *mockService) setStatus(task string, status backends.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[backends.Token(task)].status = status
}

// succeed makes all jobs succeed with n URLs.
func (s *mockService) succeed(n int) {
	s.set(func(s *mockService) { s.poll = func(*work) (backends.Status, error) { return succeeded(n), nil } })
}

func (s *mockService) polled(task string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls[backends.Token(task)]
}

// accepted returns the number of jobs and the maximum number of acceptances of one token.
func (s *mockService) accepted() (jobs, maxAccepted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		jobs++
		maxAccepted = max(maxAccepted, j.accepted)
	}
	return jobs, maxAccepted
}

func succeeded(n int) backends.Status {
	status := backends.Status{State: backends.Succeeded, Progress: 100}
	for i := range n {
		status.Results = append(status.Results, backends.Result{URL: fmt.Sprintf("https://cdn.example.com/%d.mp4", i), Type: backends.VideoFile})
	}
	return status
}

func failed(reason backends.Reason) backends.Status {
	return backends.Status{State: backends.Failed, Failure: &backends.Failure{Reason: reason, Message: "no cats"}}
}

// cancelling is a service that can end a job.
type cancelling struct{ *mockService }

func (s cancelling) Cancel(_ context.Context, ref backends.Ref) error {
	s.mu.Lock()
	j := s.jobs[strings.TrimPrefix(ref.ID, "job-")]
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		return cancel(j)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j.cancelled = true
	return nil
}

// finding is a service that finds a job by its token.
type finding struct{ *mockService }

func (s finding) Reconcile(_ context.Context, job backends.Job) (backends.Ref, error) {
	s.mu.Lock()
	j := s.jobs[job.Token]
	find := s.find
	s.mu.Unlock()
	switch {
	case find != nil:
		return find(j)
	case j == nil:
		return backends.Ref{}, &backends.Error{Kind: backends.Gone}
	}
	return backends.Ref{ID: "job-" + j.token}, nil
}

// receiver receives callbacks. It is also their transport, so no network is needed.
type receiver struct {
	mu       sync.Mutex
	address  map[string]callback.Address
	disabled []string
	got      []delivered
	answer   func(n int) int // status for the n-th request, from 1; 0: unreachable
	after    func()          // called when a request is answered
	open     int             // unanswered requests
	peak     int             // maximum of open
}

type delivered struct {
	at     time.Time
	header http.Header
	body   []byte
	url    string
}

func newReceiver() *receiver { return &receiver{address: make(map[string]callback.Address)} }

func (c *receiver) Address(_ storage.Reader, key string) (callback.Address, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.address[key]
	return a, ok, nil
}

func (c *receiver) Disable(_ storage.Txn, _ time.Time, key, url string) (*audit.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disabled = append(c.disabled, key+" "+url)
	delete(c.address, key)
	return nil, nil
}

func (c *receiver) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.got = append(c.got, delivered{time.Now(), r.Header.Clone(), body, r.URL.String()})
	c.open++
	c.peak = max(c.peak, c.open)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open--
	}()
	status := 200
	if c.answer != nil {
		status = c.answer(len(c.got))
	}
	after := c.after
	c.mu.Unlock()
	if status < 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if after != nil {
		after()
	}
	if status == 0 {
		return nil, errors.New("connection refused at 10.0.0.1:443")
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Location": {"https://elsewhere.example.com/"}},
		Body: io.NopCloser(strings.NewReader("ok")), Request: r,
	}, nil
}

// answers sets the status of each request.
func (c *receiver) answers(answer func(n int) int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

func (c *receiver) requests() []delivered {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]delivered(nil), c.got...)
}
