package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
)

func init() {
	caddy.RegisterModule(Adapter{})
}

// mockService is a generation service in this process. It accepts jobs, reports the states
// that a test sets, and records the requests.
type mockService struct {
	mu     sync.Mutex
	jobs   []backends.Job
	states map[string]backends.Status // by token
	polls  map[string]int             // by token
	accept func(backends.Job) error   // nil: every job is accepted
	stops  bool                       // a cancelled job ends
}

// mockServices are the services of this process by the name in the configuration of [Adapter].
var mockServices sync.Map

func mockServiceOf(name string) *mockService {
	s, _ := mockServices.LoadOrStore(name, &mockService{states: make(map[string]backends.Status), polls: make(map[string]int)})
	return s.(*mockService)
}

// acceptBy sets the function that accepts or refuses submissions.
func (s *mockService) acceptBy(fn func(backends.Job) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accept = fn
}

// enableCancel makes the service end cancelled jobs.
func (s *mockService) enableCancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = true
}

// setStatus sets the status of the job of a task.
func (s *mockService) setStatus(task string, status backends.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[backends.Token(task)] = status
}

// submissions returns all submissions.
func (s *mockService) submissions() []backends.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.jobs)
}

// job returns the job that was submitted for a task.
func (s *mockService) job(t testing.TB, task string) backends.Job {
	t.Helper()
	for _, job := range s.submissions() {
		if job.Token == backends.Token(task) {
			return job
		}
	}
	t.Fatalf("the backend received no job for %s", task)
	return backends.Job{}
}

// polled returns how often the job of a task was polled.
func (s *mockService) polled(task string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls[backends.Token(task)]
}

// Adapter is the Caddy module for a mock service.
type Adapter struct {
	Name string `json:"name"`

	*mockService
}

// CaddyModule returns the Caddy module information.
func (Adapter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.mock", New: func() caddy.Module { return new(Adapter) }}
}

// Provision finds the service.
func (a *Adapter) Provision(caddy.Context) error {
	a.mockService = mockServiceOf(a.Name)
	return nil
}

// UnmarshalCaddyfile reads
//
//	adapter mock <name>
func (a *Adapter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.Args(&a.Name) || d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// Submit implements backends.Backend.
func (a *Adapter) Submit(_ context.Context, job backends.Job) (backends.Ref, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs = append(a.jobs, job)
	if a.accept != nil {
		if err := a.accept(job); err != nil {
			return backends.Ref{}, err
		}
	}
	return backends.Ref{ID: job.Token}, nil
}

// Poll implements backends.Backend.
func (a *Adapter) Poll(_ context.Context, ref backends.Ref) (backends.Status, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.polls[ref.ID]++
	status, found := a.states[ref.ID]
	if !found {
		status = backends.Status{State: backends.Queued}
	}
	return status, nil
}

// Cancel implements backends.Canceler.
func (a *Adapter) Cancel(context.Context, backends.Ref) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stops {
		return &backends.Error{Kind: backends.Refused, Reason: backends.InvalidInput, Message: "the job cannot be cancelled"}
	}
	return nil
}

// noticeSecret authenticates the service's notices.
const noticeSecret = "notice-secret"

// CheckHead implements backends.Notified: the secret is in the head.
func (a *Adapter) CheckHead(n backends.Notification) error {
	if n.Header.Get("X-Mock-Secret") != noticeSecret || n.Now.IsZero() || n.Body != nil {
		return errors.New("the notice is not signed")
	}
	return nil
}

// Notice implements backends.Notified: {"token":"..."} under the secret.
func (a *Adapter) Notice(n backends.Notification) (string, error) {
	var notice struct{ Token string }
	switch {
	case n.Header.Get("X-Mock-Secret") != noticeSecret:
		return "", errors.New("the notice is not signed")
	case n.Now.IsZero() || n.Method == "" || n.Query == nil:
		return "", fmt.Errorf("the notification is incomplete: %+v", n)
	}
	err := json.Unmarshal(n.Body, &notice)
	return notice.Token, err
}

// succeeded returns the status of a job that succeeded with videos at these addresses.
func succeeded(links ...string) backends.Status {
	status := backends.Status{State: backends.Succeeded, Progress: 100}
	for _, link := range links {
		status.Results = append(status.Results, backends.Result{
			URL: link, Type: backends.VideoFile, Duration: 8, Width: 1280, Height: 720, Format: "mp4",
		})
	}
	return status
}

// failed returns the status of a job that failed.
func failed(reason backends.Reason, message string) backends.Status {
	return backends.Status{State: backends.Failed, Failure: backends.Fail(reason, "E1", message)}
}

// Interface guards.
var (
	_ caddy.Provisioner     = (*Adapter)(nil)
	_ caddyfile.Unmarshaler = (*Adapter)(nil)
	_ backends.Canceler     = (*Adapter)(nil)
	_ backends.Notified     = (*Adapter)(nil)
)
