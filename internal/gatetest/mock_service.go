package gatetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// MockService is a generation service with the gateway's own interface. The
// test sets the state of its jobs.
type MockService struct {
	Address string // of the service

	mu         sync.Mutex
	Key        string // accepted credential
	State      string // the JSON members of a job, from status on
	RetryAfter string // in seconds; empty: none
	Cancels    bool   // whether it can cancel jobs

	jobs int
}

// States of the jobs of a [MockService].
const (
	JobQueued    = `"status":"queued","progress":"0%"`
	JobHalfDone  = `"status":"in_progress","progress":"50%"`
	JobDone      = `"status":"success","progress":"100%","completed_at":1800000009,"result":{"url":"https://files.example.com/a.mp4","urls":["https://files.example.com/a.mp4"],"type":"video"}`
	JobRejected  = `"status":"failed","progress":"0%","completed_at":1800000009,"error":{"code":"TASK_FAILED","message":"rejected","reason":"CONTENT_REJECTED"}`
	JobCancelled = `"status":"failed","progress":"0%","completed_at":1800000009,"error":{"code":"TASK_FAILED","message":"cancelled","reason":"TASK_CANCELLED"}`
)

// MockServiceKey is the initial credential of a [MockService].
const MockServiceKey = "sk-studiostudiostudio"

// NewMockService starts a MockService that runs until the test ends.
func NewMockService(t testing.TB) *MockService {
	t.Helper()
	s := &MockService{Key: MockServiceKey, State: JobQueued}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.Address = server.URL
	return s
}

// SetState puts all jobs into a state.
func (s *MockService) SetState(state string) { s.Set(func(s *MockService) { s.State = state }) }

// Set changes the service.
func (s *MockService) Set(change func(s *MockService)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// Accepted returns the number of jobs.
func (s *MockService) Accepted() (n int) {
	s.Set(func(s *MockService) { n = s.jobs })
	return n
}

// ServeHTTP implements http.Handler.
func (s *MockService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		if s.RetryAfter != "" {
			w.Header().Set("Retry-After", s.RetryAfter)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, format, args...)
	}
	path, verb := strings.CutSuffix(r.URL.Path, "/cancel")
	id, isTask := strings.CutPrefix(path, "/v1/platform/tasks/")
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.Key:
		answer(http.StatusUnauthorized, `{"code":"UNAUTHORIZED","message":"no such key"}`)
	case path == "/v1/platform/video":
		s.jobs++
		answer(http.StatusOK, `{"task_id":"job-%d","status":"queued"}`, s.jobs)
	case !isTask || !strings.HasPrefix(id, "job-"):
		answer(http.StatusNotFound, `{"code":"TASK_NOT_FOUND","message":"no such task"}`)
	case verb && !s.Cancels:
		answer(http.StatusConflict, `{"code":"TASK_NOT_CANCELLABLE","message":"too late"}`)
	case verb:
		s.State = JobCancelled
		fallthrough
	default:
		answer(http.StatusOK, `{"task_id":%q,"object":"video_task","model":"video-x-1","created_at":1800000000,%s}`, id, s.State)
	}
}

// Config returns a configuration whose videos are made by the service and not
// copied. words are added to its backend.
func (s *MockService) Config(words string) Config {
	return Config{Site: Proxied, App: `
		media off
		family E video-x-*
		price video-x-* {
			second 0.10
		}
		backend studio {
			models video-x-*
			` + words + `
			adapter platform {
				url ` + s.Address + `
				key ` + MockServiceKey + `
			}
		}
	`}
}

// Payer creates a user with a key and 100.00 in the wallet.
func (g *Gate) Payer(t testing.TB) Key {
	t.Helper()
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "100")
	return key
}

// Submit submits a video of a key and returns the id of its task.
func Submit(t testing.TB, key Key) string {
	t.Helper()
	module, err := caddy.ActiveContext().App(caddymodule.AppID)
	if err != nil {
		t.Fatal(err)
	}
	app := module.(*caddymodule.App)
	runtime, leave, refused := app.Enter(t.Context())
	if refused != nil {
		t.Fatal(refused)
	}
	defer leave()
	request, _, refused := generation.DecodeVideo([]byte(`{"model":"video-x-1","prompt":"a cat"}`))
	if refused != nil {
		t.Fatal(refused)
	}
	spec, refused := app.Generation(request)
	if refused != nil {
		t.Fatal(refused)
	}
	submitted, _, err := runtime.Tasks.Submit(t.Context(), spec.Submission(ledger.Payer{User: key.UserID}, key.ID))
	if err != nil {
		t.Fatal(err)
	}
	return submitted.ID
}

// Task is a task in the output of commands.
type Task struct {
	ID       string `json:"task_id"`
	Status   task.State
	Progress string
	User     string
	UserID   string `json:"user_id"`
	Backend  string
	Handover task.Delivery
	Charged  string
	Held     string
	Due      int64
	Deadline int64
}

// Until waits until a task has this state.
func (g *Gate) Until(t testing.TB, id string, want task.State) Task {
	t.Helper()
	deadline := time.Now().Add(Timeout)
	for known := ""; ; {
		status, body := g.Admin(t, http.MethodPost, "/modelgate/tasks/watch", map[string]any{"known": map[string]string{id: known}, "wait": 1})
		var changes struct{ Items []Task }
		if err := json.Unmarshal(body, &changes); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		for _, now := range changes.Items {
			if now.Status == want {
				return now
			}
			known = string(now.Status) + " " + now.Progress
		}
		if time.Now().After(deadline) {
			t.Fatalf("the task is %q, not %s", known, want)
		}
	}
}
