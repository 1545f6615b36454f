package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func init() {
	caddy.RegisterModule(Works{})
}

// Works is a generation service that is controlled by the prompt. "done" succeeds at once,
// "wrong" fails, "stubborn" runs and cannot be cancelled, and "down" finds a service that is not
// there. Any other prompt runs until it is cancelled. Its texts and costs are for the operator only.
type Works struct{}

// CaddyModule returns the Caddy module information.
func (Works) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.backends.console_test", New: func() caddy.Module { return new(Works) }}
}

// UnmarshalCaddyfile reads
//
//	adapter console_test
func (*Works) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// Submit implements backends.Backend.
func (*Works) Submit(_ context.Context, job backends.Job) (backends.Ref, error) {
	if job.Prompt == "down" {
		return backends.Ref{}, &backends.Error{Kind: backends.Busy, Reason: backends.UpstreamBusy, Detail: "dial secret-works: connection refused"}
	}
	return backends.Ref{ID: "ref-of-the-service-" + job.Token, Kind: job.Prompt, Base: "https://service.example"}, nil
}

// Poll implements backends.Backend.
func (*Works) Poll(_ context.Context, ref backends.Ref) (backends.Status, error) {
	switch ref.Kind {
	case "done":
		return backends.Status{
			State: backends.Succeeded, Cost: backends.Cost{Amount: "0.0123", Unit: "credits-of-the-service"},
			Results: []backends.Result{{URL: "https://files.example/a.mp4", Type: backends.VideoFile, Duration: 5}},
		}, nil
	case "wrong":
		return backends.Status{State: backends.Failed, Failure: &backends.Failure{Reason: backends.ModelFailed, Message: "it went wrong"}}, nil
	}
	return backends.Status{State: backends.Running, Progress: 40, Word: "word-of-the-service"}, nil
}

// Cancel implements backends.Canceler.
func (*Works) Cancel(_ context.Context, ref backends.Ref) error {
	if ref.Kind == "stubborn" {
		return &backends.Error{Kind: backends.Refused, Message: "it runs on"}
	}
	return nil
}

// generating is the configuration of tasks in addition to app: a video costs 0.10 per
// second, and has five seconds by default.
const generating = `
	family A test-*
	backend secret-works {
		models video-* image-*
		adapter console_test
	}
	price video-* {
		second 0.10
	}
	price image-* {
		image 0.05
	}
	media off
`

// doors is site with modelgate_tasks.
const doors = site + "\nmodelgate_tasks\n"

// startGenerating starts a gate with tasks, and with more in the configuration of the app.
func startGenerating(t *testing.T, more string) *gatetest.Gate {
	t.Helper()
	return gatetest.Start(t, gatetest.Config{App: app + generating + more, Site: doors})
}

// seenTask is a task as the console shows it.
type seenTask struct {
	ID             string `json:"task_id"`
	Object         string
	Model          string
	Status         string
	Progress       string
	CreatedAt      int64 `json:"created_at"`
	CompletedAt    int64 `json:"completed_at"`
	Result         *struct{ URL string }
	Error          *struct{ Code, Reason string }
	KeyID          string `json:"key_id"`
	SessionID      string `json:"session_id"`
	SessionContext string `json:"session_context"`
	Held           string
	Charged        string
	Replayed       *bool
	PriceRule      string `json:"price_rule"`
	Form           string
	Request        map[string]any
}

// film returns the body of a video with this prompt and further members.
func film(prompt string, members ...string) string {
	return fmt.Sprintf(`{"type":"video","model":"video-test-1","prompt":%q%s}`, prompt, strings.Join(append([]string{""}, members...), ","))
}

// composes submits a task in the console, which must be accepted.
func (a account) composes(t testing.TB, body string) seenTask {
	t.Helper()
	return post[seenTask](t, a, "/api/task/self/", body)
}

// until waits until a task has a status.
func (a account) until(t testing.TB, id, status string) seenTask {
	t.Helper()
	return gatetest.Eventually(t, "the task is "+status, func() (seen seenTask, ok bool) {
		seen = get[seenTask](t, a, "/api/task/self/"+id)
		return seen, seen.Status == status
	})
}

// submits submits a task by an API key.
func submits(t testing.TB, g *gatetest.Gate, secret, prompt string) (id string) {
	t.Helper()
	answer := g.Do(t, "POST", "/v1/platform/video", "Authorization: Bearer "+secret+"\nContent-Type: application/json",
		fmt.Sprintf(`{"model":"video-test-1","prompt":%q}`, prompt))
	_, rest, _ := strings.Cut(answer.Body, `"task_id":"`)
	id, _, found := strings.Cut(rest, `"`)
	if answer.Status != http.StatusOK || !found {
		t.Fatalf("answered %d %s", answer.Status, answer.Body)
	}
	return id
}

// receiver receives callbacks. It answers all of them with 200, and records
// their ids by path.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	ids map[string][]string
}

func newReceiver(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{ids: make(map[string][]string)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ids[request.URL.Path] = append(r.ids[request.URL.Path], request.Header.Get("Webhook-Id"))
	}))
	t.Cleanup(r.Close)
	return r
}

// had waits until so many callbacks have arrived at a path, and returns their ids.
func (r *receiver) had(t testing.TB, path string, want int) []string {
	t.Helper()
	return gatetest.Eventually(t, fmt.Sprintf("%s had %d callbacks", path, want), func() (ids []string, ok bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		ids = slices.Clone(r.ids[path])
		return ids, len(ids) >= want
	})
}
