package caddymodule_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func init() {
	caddy.RegisterModule(MockAdapter{})
}

// mockService is the service of a test. It exists across reloads and records the
// operations of each adapter.
type mockService struct {
	mu          sync.Mutex
	provisioned int            // number of adapters
	cleaned     map[int]bool   // adapters that were cleaned up, by number
	jobs        map[string]int // submissions of each job
	polling     map[string]int // running polls of each job
	polls       map[int]int    // polls of each adapter
	concurrent  int            // polls of a job during another poll of it
	finished    bool           // jobs have succeeded
	release     chan struct{}  // if set, polls wait until it is closed
	blocked     int            // polls that have waited for release
}

// mockServices has the services of this process by name.
var mockServices sync.Map

func serviceOf(name string) *mockService {
	s, _ := mockServices.LoadOrStore(name, &mockService{
		cleaned: make(map[int]bool), jobs: make(map[string]int), polling: make(map[string]int), polls: make(map[int]int),
	})
	return s.(*mockService)
}

// MockAdapter is the adapter of a mock service. Its results have links.
type MockAdapter struct {
	Name string `json:"name"`

	service *mockService
	number  int
}

// CaddyModule returns the Caddy module information.
func (MockAdapter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.mock", New: func() caddy.Module { return new(MockAdapter) }}
}

// Provision registers the adapter at its service.
func (a *MockAdapter) Provision(caddy.Context) error {
	a.service = serviceOf(a.Name)
	a.service.mu.Lock()
	defer a.service.mu.Unlock()
	a.service.provisioned++
	a.number = a.service.provisioned
	return nil
}

// Cleanup records that the adapter was cleaned up.
func (a *MockAdapter) Cleanup() error {
	a.service.mu.Lock()
	defer a.service.mu.Unlock()
	a.service.cleaned[a.number] = true
	return nil
}

// UnmarshalCaddyfile reads
//
//	adapter mock <name>
func (a *MockAdapter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.AllArgs(&a.Name) {
		return d.ArgErr()
	}
	return nil
}

// Submit implements backends.Backend.
func (a *MockAdapter) Submit(_ context.Context, job backends.Job) (backends.Ref, error) {
	a.service.mu.Lock()
	defer a.service.mu.Unlock()
	a.service.jobs[job.Token]++
	return backends.Ref{ID: job.Token}, nil
}

// Poll implements backends.Backend.
func (a *MockAdapter) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	s := a.service
	s.mu.Lock()
	if s.polling[ref.ID]++; s.polling[ref.ID] > 1 {
		s.concurrent++
	}
	s.polls[a.number]++
	release, finished := s.release, s.finished
	if release != nil {
		s.blocked++
	}
	s.mu.Unlock()
	if release != nil {
		select {
		case <-release:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling[ref.ID]--
	if !finished {
		return backends.Status{State: backends.Running, Word: "running", Progress: 50}, nil
	}
	return backends.Status{State: backends.Succeeded, Word: "done", Results: []backends.Result{{URL: "https://files.example.com/a.mp4", Type: backends.VideoFile}}}, nil
}

// with runs fn while no other operation runs.
func (s *mockService) with(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// waitForBlocked waits until a number of polls are blocked.
func (s *mockService) waitForBlocked(t *testing.T, want int) {
	t.Helper()
	gatetest.Eventually(t, fmt.Sprintf("%d polls are blocked", want), func() (blocked int, ok bool) {
		s.with(func() { blocked = s.blocked })
		return blocked, blocked == want
	})
}

// last returns the number of the adapter that was provisioned last.
func (s *mockService) last() (n int) {
	s.with(func() { n = s.provisioned })
	return n
}

// mockConfig returns a configuration with one backend, which uses the mock service of
// that name. Options are added to the backend.
func mockConfig(name, options string) gatetest.Config {
	return gatetest.Config{Site: gatetest.Proxied + "\nmodelgate_health", Global: "grace_period 1m", App: `
		media off
		family E video-x-*
		limits {
			unfinished_tasks 2000
		}
		backend ` + name + ` {
			models video-x-*
			polls_per_second 5000
			` + options + `
			adapter mock ` + name + `
		}
	`}
}

// submittedOnce checks that the service got a number of jobs, each of them once.
func (s *mockService) submittedOnce(t *testing.T, want int) {
	t.Helper()
	s.with(func() {
		var times []int
		for _, n := range s.jobs {
			times = append(times, n)
		}
		slices.Sort(times)
		if len(times) != want || times[len(times)-1] != 1 {
			t.Errorf("%d tasks made %d jobs; the largest number of submissions of a job is %d", want, len(times), times[len(times)-1])
		}
	})
}
