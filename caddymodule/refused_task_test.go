package caddymodule_test

import (
	"bytes"
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

// TestATaskThatItsServiceRefusesStopsNoOtherAndFails goes through the gateway: a
// service that always answers one prompt with 429 or 403 gets the others.
func TestATaskThatItsServiceRefusesStopsNoOtherAndFails(t *testing.T) {
	for status, reason := range map[int]string{http.StatusTooManyRequests: "UPSTREAM_BUSY", http.StatusForbidden: "UPSTREAM_ERROR"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := newStudio(t)
			var refused atomic.Int64
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), "never") {
					refused.Add(1)
					w.WriteHeader(status)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				s.ServeHTTP(w, r)
			}))
			t.Cleanup(front.Close)
			config := s.config("busy_timeout 10m")
			config.App = strings.ReplaceAll(config.App, s.address, front.URL)
			config.Site += "\nmodelgate_tasks"
			g := gatetest.Start(t, config)
			key := payer(t, g)
			post := func(prompt string) string {
				answer := g.Do(t, http.MethodPost, "/v1/platform/video", "Authorization: Bearer "+key.Secret,
					fmt.Sprintf(`{"model":"video-x-1","prompt":%q}`, prompt))
				_, rest, _ := strings.Cut(answer.Body, `"task_id":"`)
				id, _, _ := strings.Cut(rest, `"`)
				if answer.Status != http.StatusOK || id == "" {
					t.Fatalf("answered %d %s", answer.Status, answer.Body)
				}
				return id
			}
			never := post("never")
			for range 10 {
				post("now")
			}
			gatetest.Eventually(t, "the others are at the service", func() (n int, ok bool) { n = s.taken(); return n, n == 10 })
			s.say(done)
			g.Wait(11 * time.Minute)
			until(t, g, never, task.Failed)
			if shown := g.Do(t, http.MethodGet, "/v1/platform/tasks/"+never, "Authorization: Bearer "+key.Secret, ""); !strings.Contains(shown.Body, reason) {
				t.Errorf("it is shown as %s", shown.Body)
			}
			if n := refused.Load(); n > 10 {
				t.Errorf("it was submitted %d times", n)
			}
			g.Verify(t)
		})
	}
}
