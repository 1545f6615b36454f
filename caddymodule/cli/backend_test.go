package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// backend is a backend in the output of commands.
type backend struct {
	Name, Adapter       string
	Models              []string
	Configured, Drained bool
	Running, Waiting    int
	MaxRunning          int `json:"max_running"`
	Oldest              int64
}

func TestBackendListPrintsRunningAndWaitingTasks(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("max_running 1")
	g := gatetest.Start(t, config)
	ann := g.Payer(t)
	before := time.Now().Unix()
	gatetest.Submit(t, ann)
	gatetest.Submit(t, ann)
	got := runJSON[struct{ Items []backend }](t, g, "backend", "list")
	if len(got.Items) != 1 || got.Items[0].Oldest < before || got.Items[0].Oldest > time.Now().Unix() {
		t.Fatalf("the list is %+v", got)
	}
	one := got.Items[0]
	if one.Name != "studio" || one.Adapter != "platform" || !slices.Equal(one.Models, []string{"video-x-*"}) || !one.Configured || one.Drained || one.Running != 1 || one.Waiting != 1 || one.MaxRunning != 1 {
		t.Errorf("the list is %+v", one)
	}
	rows := table(t, g, "backend", "list")
	if len(rows) != 2 || rows[0] != "NAME | ADAPTER | MODELS | RUNNING | WAITING | OLDEST WAITS SINCE | STATE" ||
		!strings.HasPrefix(rows[1], "studio | platform | video-x-* | 1 of 1 | 1 | 20") || !strings.HasSuffix(rows[1], " | enabled") {
		t.Errorf("the output is %q", rows)
	}

	// A backend that is not configured is listed with its waiting tasks.
	config.App = ""
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if rows := table(t, g, "backend", "list"); len(rows) != 2 || !strings.HasPrefix(rows[1], "studio | - | - | 1 | 1 | ") || !strings.HasSuffix(rows[1], " | not configured") {
		t.Errorf("the output is %q", rows)
	}
	if code, _, stderr := g.Command(t, "", "backend", "check", "studio"); code != 3 || !strings.Contains(stderr, "configured") {
		t.Errorf("a check of a backend that is not configured: exit code %d: %s", code, stderr)
	}
	if got := runJSON[struct{ Items []any }](t, g, "backend", "check"); len(got.Items) != 0 {
		t.Errorf("the checks are %v", got)
	}
}

func TestADrainedBackendStartsNoTasksAfterAReload(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	g := gatetest.Start(t, config)
	ann := g.Payer(t)
	s.SetState(gatetest.JobHalfDone)
	before := gatetest.Submit(t, ann)
	for range 2 { // the second drain changes nothing
		if got := runJSON[backend](t, g, "backend", "drain", "studio"); !got.Drained {
			t.Fatalf("the drained backend is %+v", got)
		}
	}
	waits := gatetest.Submit(t, ann)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	s.SetState(gatetest.JobDone)
	g.Until(t, before, task.Success) // a running task continues
	after := gatetest.Submit(t, ann)
	for _, id := range []string{waits, after} {
		if got := runJSON[gatetest.Task](t, g, "task", "show", id); got.Status != task.Queued || got.Handover != task.None {
			t.Errorf("the waiting task is %+v", got)
		}
	}
	if n := s.Accepted(); n != 1 {
		t.Errorf("the backend got %d tasks", n)
	}
	if rows := table(t, g, "backend", "list"); !strings.HasSuffix(rows[1], " | drained") || !strings.Contains(rows[1], " | 0 | 2 | ") {
		t.Errorf("the output is %q", rows)
	}
	if got := runJSON[backend](t, g, "backend", "enable", "studio"); got.Drained {
		t.Errorf("the enabled backend is %+v", got)
	}
	for _, id := range []string{waits, after} {
		g.Until(t, id, task.Success)
	}
	for _, action := range []string{"backend.drain", "backend.enable"} {
		g.WaitLine(t, isAudit(action, "studio"))
	}
	g.Verify(t)
}

// checked is the output of a check.
type checked struct {
	Items []struct{ Name, State, Detail string }
}

func TestBackendCheckReportsTheStateOfBackends(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += `
		backend other {
			models video-other-*
			adapter fal {
				key id:secret
				model video-other-1 owner/app
			}
		}
	`
	g := gatetest.Start(t, config)
	got := runJSON[checked](t, g, "backend", "check")
	var states []string
	for _, one := range got.Items {
		states = append(states, one.Name+" "+one.State)
	}
	if !slices.Equal(states, []string{"other unchecked", "studio ok"}) {
		t.Errorf("the checks are %+v", got)
	}
	if rows := table(t, g, "backend", "check", "studio"); len(rows) != 2 || rows[0] != "NAME | STATE | TOOK | DETAIL" || !strings.HasPrefix(rows[1], "studio | ok | ") {
		t.Errorf("the output is %q", rows)
	}
	if code, stdout, stderr := g.Command(t, "", "backend", "check", "other"); code != 4 || !strings.Contains(stdout, "no request without cost") || !strings.Contains(stderr, "cannot be checked") {
		t.Errorf("a backend without a check: exit code %d: %s%s", code, stdout, stderr)
	}

	s.Set(func(s *gatetest.MockService) { s.Key = "sk-anotheranotheranother" })
	code, stdout, stderr := g.Command(t, "", "backend", "check")
	if code != 1 || !strings.Contains(stdout, "studio  failed") || !strings.Contains(stdout, "does not accept the gateway's account: the platform answered the check with 401") || !strings.Contains(stderr, "the check of studio failed") {
		t.Errorf("a wrong key: exit code %d: %s%s", code, stdout, stderr)
	}
	if strings.Contains(stdout+stderr, gatetest.MockServiceKey) || g.Logged(gatetest.MockServiceKey) {
		t.Error("the output or the log contains the key")
	}
	if n := s.Accepted(); n != 0 {
		t.Errorf("the checks created %d jobs", n)
	}
}
