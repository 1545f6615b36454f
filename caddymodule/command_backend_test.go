package caddymodule_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// backend is a backend as commands print it.
type backend struct {
	Name, Adapter       string
	Models              []string
	Configured, Drained bool
	Running, Waiting    int
	MaxRunning          int `json:"max_running"`
	Oldest              int64
}

func TestABackendIsListedWithWhatItHasToDo(t *testing.T) {
	s := newStudio(t)
	config := s.config("max_running 1")
	g := gatetest.Start(t, config)
	ann := payer(t, g)
	before := time.Now().Unix()
	submit(t, ann)
	submit(t, ann)
	got := asked[struct{ Items []backend }](t, g, "backend", "list")
	if len(got.Items) != 1 || got.Items[0].Oldest < before || got.Items[0].Oldest > time.Now().Unix() {
		t.Fatalf("listed are %+v", got)
	}
	one := got.Items[0]
	if one.Name != "studio" || one.Adapter != "platform" || !slices.Equal(one.Models, []string{"video-x-*"}) || !one.Configured || one.Drained || one.Running != 1 || one.Waiting != 1 || one.MaxRunning != 1 {
		t.Errorf("listed is %+v", one)
	}
	rows := table(t, g, "backend", "list")
	if len(rows) != 2 || rows[0] != "NAME | ADAPTER | MODELS | RUNNING | WAITING | OLDEST WAITS SINCE | STATE" ||
		!strings.HasPrefix(rows[1], "studio | platform | video-x-* | 1 of 1 | 1 | 20") || !strings.HasSuffix(rows[1], " | enabled") {
		t.Errorf("printed is %q", rows)
	}

	// Without its configuration its tasks wait, and an operator sees that.
	config.App = ""
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if rows := table(t, g, "backend", "list"); len(rows) != 2 || !strings.HasPrefix(rows[1], "studio | - | - | 1 | 1 | ") || !strings.HasSuffix(rows[1], " | not configured") {
		t.Errorf("printed is %q", rows)
	}
	if code, _, stderr := run(t, g, "", "backend", "check", "studio"); code != 3 || !strings.Contains(stderr, "configured") {
		t.Errorf("its check ends with %d: %s", code, stderr)
	}
	if got := asked[struct{ Items []any }](t, g, "backend", "check"); len(got.Items) != 0 {
		t.Errorf("checked are %v", got)
	}
}

func TestADrainedBackendKeepsTasksWaitingOverAReload(t *testing.T) {
	s := newStudio(t)
	config := s.config("")
	g := gatetest.Start(t, config)
	ann := payer(t, g)
	s.say(halfDone)
	before := submit(t, ann)
	for range 2 { // twice is once
		if got := asked[backend](t, g, "backend", "drain", "studio"); !got.Drained {
			t.Fatalf("drained it is %+v", got)
		}
	}
	waits := submit(t, ann)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	s.say(done)
	until(t, g, before, task.Success) // what it has runs on
	after := submit(t, ann)
	for _, id := range []string{waits, after} {
		if got := asked[shown](t, g, "task", "show", id); got.Status != task.Queued || got.Handover != task.None {
			t.Errorf("a task waits as %+v", got)
		}
	}
	if n := s.taken(); n != 1 {
		t.Errorf("the backend was given %d tasks", n)
	}
	if rows := table(t, g, "backend", "list"); !strings.HasSuffix(rows[1], " | drained") || !strings.Contains(rows[1], " | 0 | 2 | ") {
		t.Errorf("printed is %q", rows)
	}
	if got := asked[backend](t, g, "backend", "enable", "studio"); got.Drained {
		t.Errorf("enabled it is %+v", got)
	}
	for _, id := range []string{waits, after} {
		until(t, g, id, task.Success)
	}
	for _, action := range []string{"backend.drain", "backend.enable"} {
		g.WaitLine(t, isAudit(action, "studio"))
	}
	g.Verify(t)
}

// checked is what a check came to.
type checked struct {
	Items []struct{ Name, State, Detail string }
}

func TestACheckTellsWhetherABackendWouldTakeATask(t *testing.T) {
	s := newStudio(t)
	config := s.config("")
	config.App += `
		backend mute {
			models video-mute-*
			adapter fal {
				key id:secret
				model video-mute-1 owner/app
			}
		}
	`
	g := gatetest.Start(t, config)
	got := asked[checked](t, g, "backend", "check")
	var states []string
	for _, one := range got.Items {
		states = append(states, one.Name+" "+one.State)
	}
	if !slices.Equal(states, []string{"mute unchecked", "studio ok"}) {
		t.Errorf("all of them: %+v", got)
	}
	if rows := table(t, g, "backend", "check", "studio"); len(rows) != 2 || rows[0] != "NAME | STATE | TOOK | DETAIL" || !strings.HasPrefix(rows[1], "studio | ok | ") {
		t.Errorf("printed is %q", rows)
	}
	if code, stdout, stderr := run(t, g, "", "backend", "check", "mute"); code != 4 || !strings.Contains(stdout, "no question to the service that costs nothing") || !strings.Contains(stderr, "cannot be checked") {
		t.Errorf("one that cannot be asked ends with %d: %s%s", code, stdout, stderr)
	}

	s.set(func(s *studio) { s.key = "sk-anotheranotheranother" })
	code, stdout, stderr := run(t, g, "", "backend", "check")
	if code != 1 || !strings.Contains(stdout, "studio  failed") || !strings.Contains(stdout, "does not accept the gateway's account: the platform answered the check with 401") || !strings.Contains(stderr, "the check of studio failed") {
		t.Errorf("a wrong key ends with %d: %s%s", code, stdout, stderr)
	}
	if strings.Contains(stdout+stderr, studioKey) || g.Logged(studioKey) {
		t.Error("the key is shown")
	}
	if n := s.taken(); n != 0 {
		t.Errorf("the checks came to %d jobs", n)
	}
}

func TestAdminRoutesOfTasksRefuseWhatTheyCannotDo(t *testing.T) {
	s := newStudio(t)
	g := gatetest.Start(t, s.config(""))
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
		t.Errorf("a task that is not there is %d %s", status, answer)
	}
}
