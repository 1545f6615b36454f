package cli_test

import (
	"slices"
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
	s := gatetest.NewMockService(t)
	config := s.Config("max_running 1")
	g := gatetest.Start(t, config)
	ann := g.Payer(t)
	before := time.Now().Unix()
	gatetest.Submit(t, ann)
	gatetest.Submit(t, ann)
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
	if code, _, stderr := g.Command(t, "", "backend", "check", "studio"); code != 3 || !strings.Contains(stderr, "configured") {
		t.Errorf("its check ends with %d: %s", code, stderr)
	}
	if got := asked[struct{ Items []any }](t, g, "backend", "check"); len(got.Items) != 0 {
		t.Errorf("checked are %v", got)
	}
}

func TestADrainedBackendKeepsTasksWaitingOverAReload(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	g := gatetest.Start(t, config)
	ann := g.Payer(t)
	s.SetState(gatetest.JobHalfDone)
	before := gatetest.Submit(t, ann)
	for range 2 { // twice is once
		if got := asked[backend](t, g, "backend", "drain", "studio"); !got.Drained {
			t.Fatalf("drained it is %+v", got)
		}
	}
	waits := gatetest.Submit(t, ann)
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	s.SetState(gatetest.JobDone)
	g.Until(t, before, task.Success) // what it has runs on
	after := gatetest.Submit(t, ann)
	for _, id := range []string{waits, after} {
		if got := asked[gatetest.Task](t, g, "task", "show", id); got.Status != task.Queued || got.Handover != task.None {
			t.Errorf("a task waits as %+v", got)
		}
	}
	if n := s.Accepted(); n != 1 {
		t.Errorf("the backend was given %d tasks", n)
	}
	if rows := table(t, g, "backend", "list"); !strings.HasSuffix(rows[1], " | drained") || !strings.Contains(rows[1], " | 0 | 2 | ") {
		t.Errorf("printed is %q", rows)
	}
	if got := asked[backend](t, g, "backend", "enable", "studio"); got.Drained {
		t.Errorf("enabled it is %+v", got)
	}
	for _, id := range []string{waits, after} {
		g.Until(t, id, task.Success)
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
	s := gatetest.NewMockService(t)
	config := s.Config("")
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
	if code, stdout, stderr := g.Command(t, "", "backend", "check", "mute"); code != 4 || !strings.Contains(stdout, "no question to the service that costs nothing") || !strings.Contains(stderr, "cannot be checked") {
		t.Errorf("one that cannot be asked ends with %d: %s%s", code, stdout, stderr)
	}

	s.Set(func(s *gatetest.MockService) { s.Key = "sk-anotheranotheranother" })
	code, stdout, stderr := g.Command(t, "", "backend", "check")
	if code != 1 || !strings.Contains(stdout, "studio  failed") || !strings.Contains(stdout, "does not accept the gateway's account: the platform answered the check with 401") || !strings.Contains(stderr, "the check of studio failed") {
		t.Errorf("a wrong key ends with %d: %s%s", code, stdout, stderr)
	}
	if strings.Contains(stdout+stderr, gatetest.MockServiceKey) || g.Logged(gatetest.MockServiceKey) {
		t.Error("the key is shown")
	}
	if n := s.Accepted(); n != 0 {
		t.Errorf("the checks came to %d jobs", n)
	}
}
