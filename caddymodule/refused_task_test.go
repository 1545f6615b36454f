package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// refusing is a gateway with a mock service that refuses every prompt with "never".
type refusing struct {
	*gatetest.MockService
	gate    *gatetest.Gate
	refused atomic.Int64
}

func newRefusing(t *testing.T, status int) *refusing {
	t.Helper()
	s := &refusing{MockService: gatetest.NewMockService(t)}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "never") {
			s.refused.Add(1)
			w.WriteHeader(status)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	config := s.Config("busy_timeout 10m")
	config.App = strings.ReplaceAll(config.App, s.Address, front.URL)
	config.Site += "\nmodelgate_tasks"
	s.gate = gatetest.Start(t, config)
	return s
}

// post submits a video and returns the id of its task.
func (s *refusing) post(t *testing.T, key gatetest.Key, prompt string) string {
	t.Helper()
	answer := s.gate.Do(t, http.MethodPost, "/v1/platform/video", "Authorization: Bearer "+key.Secret,
		fmt.Sprintf(`{"model":"video-x-1","prompt":%q}`, prompt))
	_, rest, _ := strings.Cut(answer.Body, `"task_id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if answer.Status != http.StatusOK || id == "" {
		t.Fatalf("got %d %s", answer.Status, answer.Body)
	}
	return id
}

// busy reports whether the backend is paused.
func (s *refusing) busy(t *testing.T) bool {
	t.Helper()
	var list struct{ Items []struct{ Busy bool } }
	_, body := s.gate.Admin(t, http.MethodGet, "/modelgate/backends", nil)
	if err := json.Unmarshal(body, &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%s: %v", body, err)
	}
	return list.Items[0].Busy
}

// TestARefusedTaskFailsAndBlocksNoOther goes through the gateway: a
// service that always answers one prompt with 429 or 403 gets the others.
func TestARefusedTaskFailsAndBlocksNoOther(t *testing.T) {
	for status, reason := range map[int]string{http.StatusTooManyRequests: "UPSTREAM_BUSY", http.StatusForbidden: "UPSTREAM_ERROR"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := newRefusing(t, status)
			g := s.gate
			key := g.Payer(t)
			never := s.post(t, key, "never")
			for range 10 {
				s.post(t, key, "now")
			}
			gatetest.Eventually(t, "the service has the other tasks", func() (n int, ok bool) { n = s.Accepted(); return n, n == 10 })
			s.SetState(gatetest.JobDone)
			g.Wait(11 * time.Minute)
			g.Until(t, never, task.Failed)
			if shown := g.Do(t, http.MethodGet, "/v1/platform/tasks/"+never, "Authorization: Bearer "+key.Secret, ""); !strings.Contains(shown.Body, reason) {
				t.Errorf("the refused task is %s", shown.Body)
			}
			if n := s.refused.Load(); n > 10 {
				t.Errorf("the refused task was submitted %d times", n)
			}
			g.Verify(t)
		})
	}
}

// TestForbiddenTasksOfOneUserBlockNoOthers: the service refuses every task
// of one user with 403. It still gets the tasks of another user.
func TestForbiddenTasksOfOneUserBlockNoOthers(t *testing.T) {
	s := newRefusing(t, http.StatusForbidden)
	mallory, bob := s.gate.Payer(t), s.gate.Payer(t)
	for range 20 {
		s.post(t, mallory, "never")
	}
	begun := time.Now()
	for n := range 10 {
		s.post(t, bob, "now")
		gatetest.Eventually(t, "the service has the task of the other user", func() (taken int, ok bool) {
			taken = s.Accepted()
			return taken, taken == n+1
		})
		s.post(t, mallory, "never")
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("ten tasks of another user took %v", took)
	}
	if s.busy(t) {
		t.Error("the backend is paused")
	}
	if n := s.refused.Load(); n > 10 {
		t.Errorf("%d submissions were refused", n)
	}
}

// TestForbiddenTasksOfSeveralUsersPauseTheBackend: such refusals are caused by the
// account, and the gateway pauses before it has sent every task.
func TestForbiddenTasksOfSeveralUsersPauseTheBackend(t *testing.T) {
	s := newRefusing(t, http.StatusForbidden)
	ann, bob := s.gate.Payer(t), s.gate.Payer(t)
	for range 10 {
		s.post(t, ann, "never")
		s.post(t, bob, "never")
	}
	s.gate.WaitLine(t, func(l gatetest.Line) bool {
		return strings.Contains(l.Text("msg"), "does not accept the gateway's account")
	})
	if !s.busy(t) {
		t.Error("the backend is not paused")
	}
	if n := s.refused.Load(); n > 5 {
		t.Errorf("%d of 20 tasks were sent", n)
	}
}
