package adminapi_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

func TestAdminRoutesOfTasksRefuseInvalidRequests(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config(""))
	many := make(map[string]string)
	for i := range 501 {
		many[strconv.Itoa(i)] = ""
	}
	type body = map[string]any
	refuses(t, g, []refusal{
		{"GET", "/modelgate/tasks?limit=101", nil, 400, "INVALID_PARAMETER", "limit"},
		{"GET", "/modelgate/tasks?limit=x", nil, 400, "INVALID_PARAMETER", "limit"},
		{"GET", "/modelgate/tasks?status=done", nil, 400, "INVALID_PARAMETER", "status"},
		{"GET", "/modelgate/tasks?user=nobody", nil, 404, "NOT_FOUND", "user"},
		{"GET", "/modelgate/tasks/x", nil, 404, "TASK_NOT_FOUND", ""},
		{"GET", "/modelgate/tasks/unfinished?user=nobody", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/tasks/watch", body{}, 400, "INVALID_PARAMETER", "known"},
		{"POST", "/modelgate/tasks/watch", body{"known": many}, 400, "INVALID_PARAMETER", "known"},
		{"POST", "/modelgate/tasks/watch", body{"known": body{"x": ""}, "wait": 61}, 400, "INVALID_PARAMETER", "wait"},
		{"POST", "/modelgate/tasks/watch", body{"known": body{"x": ""}, "wait": -1}, 400, "INVALID_PARAMETER", "wait"},
		{"POST", "/modelgate/tasks/watch", body{"known": body{"x": 7}}, 400, "INVALID_PARAMETER", "known.x"},
		{"POST", "/modelgate/tasks/x/retry", nil, 404, "TASK_NOT_FOUND", ""},
		{"POST", "/modelgate/tasks/x/cancel", nil, 404, "TASK_NOT_FOUND", ""},
		{"POST", "/modelgate/tasks/x/delete", nil, 404, "NOT_FOUND", ""},
		{"GET", "/modelgate/callbacks", nil, 400, "MISSING_PARAMETER", "user"},
		{"GET", "/modelgate/callbacks?user=nobody", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/callbacks/x/redeliver", nil, 404, "NOT_FOUND", ""},
		{"POST", "/modelgate/backends/x/check", nil, 404, "NOT_FOUND", "backend"},
		{"POST", "/modelgate/backends/x/drain", nil, 404, "NOT_FOUND", "backend"},
		{"POST", "/modelgate/backends/x/enable", nil, 404, "NOT_FOUND", "backend"},
	})
	if status, answer := g.Admin(t, http.MethodPost, "/modelgate/tasks/watch", body{"known": body{"x": ""}, "wait": 60}); status != http.StatusOK || !strings.Contains(string(answer), `"gone":["x"]`) {
		t.Errorf("the watch of a missing task returned %d %s", status, answer)
	}
}

func TestWatchReturnsAfterAChange(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config("max_running 1"))
	ann := g.Payer(t)
	unchanged, changed := gatetest.Submit(t, ann), gatetest.Submit(t, ann)
	known := map[string]string{unchanged: "queued 0%", changed: "queued 0%"}
	answers := make(chan []byte, 1)
	go func() {
		_, body := g.Admin(t, http.MethodPost, "/modelgate/tasks/watch", map[string]any{"known": known, "wait": 60})
		answers <- body
	}()
	g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("uri") == "/modelgate/tasks/watch" })
	g.MustAdmin(t, http.MethodPost, "/modelgate/tasks/"+changed+"/cancel", nil, nil)
	select {
	case body := <-answers:
		var answer struct {
			Items []gatetest.Task
			Gone  []string
		}
		if err := json.Unmarshal(body, &answer); err != nil || len(answer.Gone) != 0 || len(answer.Items) != 1 || answer.Items[0].ID != changed || answer.Items[0].Status != task.Failed {
			t.Errorf("the watch returned %s: %v", body, err)
		}
	case <-time.After(gatetest.Timeout):
		t.Fatal("the watch did not return")
	}
}
