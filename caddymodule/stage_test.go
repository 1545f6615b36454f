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
	caddy.RegisterModule(Actor{})
}

// stage is where the adapters of one test act: it outlives the configurations
// they are of, and knows which of them does what.
type stage struct {
	mu       sync.Mutex
	actors   int            // that were provisioned
	cleaned  map[int]bool   // those that were cleaned up
	jobs     map[string]int // how often each was submitted
	asking   map[string]int // how many ask for each at this moment
	askers   map[int]int    // how often each actor was asked
	crowded  int            // polls of a job while another was under way
	finished bool           // jobs have succeeded
	gate     chan struct{}  // nil, or what polls wait for
	held     int            // polls that wait
}

// stages are those of this process, by name.
var stages sync.Map

func stageOf(name string) *stage {
	s, _ := stages.LoadOrStore(name, &stage{
		cleaned: make(map[int]bool), jobs: make(map[string]int), asking: make(map[string]int), askers: make(map[int]int),
	})
	return s.(*stage)
}

// Actor is the adapter of a stage, whose results have links.
type Actor struct {
	Name string `json:"name"`

	stage  *stage
	number int
}

// CaddyModule returns the Caddy module information.
func (Actor) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.stage", New: func() caddy.Module { return new(Actor) }}
}

// Provision enters the stage.
func (a *Actor) Provision(caddy.Context) error {
	a.stage = stageOf(a.Name)
	a.stage.mu.Lock()
	defer a.stage.mu.Unlock()
	a.stage.actors++
	a.number = a.stage.actors
	return nil
}

// Cleanup leaves the stage.
func (a *Actor) Cleanup() error {
	a.stage.mu.Lock()
	defer a.stage.mu.Unlock()
	a.stage.cleaned[a.number] = true
	return nil
}

// UnmarshalCaddyfile reads
//
//	adapter stage <name>
func (a *Actor) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.AllArgs(&a.Name) {
		return d.ArgErr()
	}
	return nil
}

// Submit implements backends.Backend.
func (a *Actor) Submit(_ context.Context, job backends.Job) (backends.Ref, error) {
	a.stage.mu.Lock()
	defer a.stage.mu.Unlock()
	a.stage.jobs[job.Token]++
	return backends.Ref{ID: job.Token}, nil
}

// Poll implements backends.Backend.
func (a *Actor) Poll(ctx context.Context, ref backends.Ref) (backends.Status, error) {
	s := a.stage
	s.mu.Lock()
	if s.asking[ref.ID]++; s.asking[ref.ID] > 1 {
		s.crowded++
	}
	s.askers[a.number]++
	gate, finished := s.gate, s.finished
	if gate != nil {
		s.held++
	}
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking[ref.ID]--
	if !finished {
		return backends.Status{State: backends.Running, Word: "running", Progress: 50}, nil
	}
	return backends.Status{State: backends.Succeeded, Word: "done", Results: []backends.Result{{URL: "https://files.example.com/a.mp4", Type: backends.VideoFile}}}, nil
}

// with runs fn while no other operation runs.
func (s *stage) with(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// waiting waits until so many polls wait for the gate.
func (s *stage) waiting(t *testing.T, want int) {
	t.Helper()
	gatetest.Eventually(t, fmt.Sprintf("%d polls wait", want), func() (held int, ok bool) {
		s.with(func() { held = s.held })
		return held, held == want
	})
}

// last is the number of the adapter that was provisioned last.
func (s *stage) last() (n int) {
	s.with(func() { n = s.actors })
	return n
}

// acts is a configuration with one backend on a stage, for the model of submit.
func acts(name, words string) gatetest.Config {
	return gatetest.Config{Site: gatetest.Proxied + "\nmodelgate_health", Global: "grace_period 1m", App: `
		media off
		family E video-x-*
		limits {
			unfinished_tasks 2000
		}
		backend ` + name + ` {
			models video-x-*
			polls_per_second 5000
			` + words + `
			adapter stage ` + name + `
		}
	`}
}

// submittedOnce checks that no job of the stage was submitted twice.
func (s *stage) submittedOnce(t *testing.T, want int) {
	t.Helper()
	s.with(func() {
		var times []int
		for _, n := range s.jobs {
			times = append(times, n)
		}
		slices.Sort(times)
		if len(times) != want || times[len(times)-1] != 1 {
			t.Errorf("of %d tasks there are %d jobs, one of them submitted %d times", want, len(times), times[len(times)-1])
		}
	})
}
