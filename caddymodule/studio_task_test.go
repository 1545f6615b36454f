package caddymodule_test

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
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// studio is a generation service that has the interface of this one, and whose
// jobs stand where a test puts them.
type studio struct {
	address string // of the service

	mu       sync.Mutex
	key      string // the one that it knows
	jobs     int
	state    string // the rest of a job's resource, from its status on
	patience string // how many seconds it asks to wait; empty: it does not
	cancels  bool
}

// What a studio says of its jobs.
const (
	inQueue   = `"status":"queued","progress":"0%"`
	halfDone  = `"status":"in_progress","progress":"50%"`
	done      = `"status":"success","progress":"100%","completed_at":1800000009,"result":{"url":"https://files.example.com/a.mp4","urls":["https://files.example.com/a.mp4"],"type":"video"}`
	rejected  = `"status":"failed","progress":"0%","completed_at":1800000009,"error":{"code":"TASK_FAILED","message":"not that","reason":"CONTENT_REJECTED"}`
	cancelled = `"status":"failed","progress":"0%","completed_at":1800000009,"error":{"code":"TASK_FAILED","message":"cancelled","reason":"TASK_CANCELLED"}`
)

const studioKey = "sk-studiostudiostudio"

func newStudio(t *testing.T) *studio {
	t.Helper()
	s := &studio{key: studioKey, state: inQueue}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.address = server.URL
	return s
}

// say puts all jobs into a state.
func (s *studio) say(state string) { s.set(func(s *studio) { s.state = state }) }

func (s *studio) set(change func(s *studio)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// taken is how many jobs the studio has.
func (s *studio) taken() (n int) {
	s.set(func(s *studio) { n = s.jobs })
	return n
}

func (s *studio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		if s.patience != "" {
			w.Header().Set("Retry-After", s.patience)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, format, args...)
	}
	path, verb := strings.CutSuffix(r.URL.Path, "/cancel")
	id, isTask := strings.CutPrefix(path, "/v1/platform/tasks/")
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.key:
		answer(http.StatusUnauthorized, `{"code":"UNAUTHORIZED","message":"no such key"}`)
	case path == "/v1/platform/video":
		s.jobs++
		answer(http.StatusOK, `{"task_id":"job-%d","status":"queued"}`, s.jobs)
	case !isTask || !strings.HasPrefix(id, "job-"):
		answer(http.StatusNotFound, `{"code":"TASK_NOT_FOUND","message":"no such task"}`)
	case verb && !s.cancels:
		answer(http.StatusConflict, `{"code":"TASK_NOT_CANCELLABLE","message":"too late"}`)
	case verb:
		s.state = cancelled
		fallthrough
	default:
		answer(http.StatusOK, `{"task_id":%q,"object":"video_task","model":"video-x-1","created_at":1800000000,%s}`, id, s.state)
	}
}

// config is a configuration whose videos are made at a studio, and stay there.
func (s *studio) config(words string) gatetest.Config {
	return gatetest.Config{Site: gatetest.Proxied, App: `
		media off
		family E video-x-*
		price video-x-* {
			second 0.10
		}
		backend studio {
			models video-x-*
			` + words + `
			adapter platform {
				url ` + s.address + `
				key ` + studioKey + `
			}
		}
	`}
}

// payer makes a user who can afford some videos.
func payer(t *testing.T, g *gatetest.Gate) gatetest.Key {
	t.Helper()
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "100")
	return key
}

// submit submits a video of a key and returns the id of its task.
func submit(t *testing.T, key gatetest.Key) string {
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
	asked, refused := app.Generation(request)
	if refused != nil {
		t.Fatal(refused)
	}
	made, _, err := runtime.Tasks.Submit(t.Context(), asked.Submission(ledger.Payer{User: key.UserID}, key.ID))
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// shown is a task as commands print it.
type shown struct {
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

// until waits for the status of a task.
func until(t *testing.T, g *gatetest.Gate, id string, want task.State) shown {
	t.Helper()
	deadline := time.Now().Add(gatetest.Patience)
	for known := ""; ; {
		status, body := g.Admin(t, http.MethodPost, "/modelgate/tasks/watch", map[string]any{"known": map[string]string{id: known}, "wait": 1})
		var news struct{ Items []shown }
		if err := json.Unmarshal(body, &news); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		for _, now := range news.Items {
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
