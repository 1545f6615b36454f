package cli_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// listing is the output of task list --json.
type listing struct {
	Items []gatetest.Task
	Next  string
}

func (l listing) ids() (ids []string) {
	for _, one := range l.Items {
		ids = append(ids, one.ID)
	}
	return ids
}

func sorted(ids ...string) []string { return slices.Sorted(slices.Values(ids)) }

func TestTasksAreListedByUserAndStatusInPages(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config("max_running 1"))
	ann, bob := g.Payer(t), g.Payer(t)
	first := gatetest.Submit(t, ann)
	second, third := gatetest.Submit(t, ann), gatetest.Submit(t, bob) // wait for the slot
	all := runJSON[listing](t, g, "task", "list")
	if !slices.Equal(sorted(all.ids()...), sorted(first, second, third)) || all.Next != "" {
		t.Errorf("the list is %+v", all)
	}
	if got := runJSON[listing](t, g, "task", "list", "--user", ann.UserID); !slices.Equal(sorted(got.ids()...), sorted(first, second)) {
		t.Errorf("the tasks of one user are %+v", got)
	}
	page := runJSON[listing](t, g, "task", "list", "--limit", "2")
	if !slices.Equal(page.ids(), all.ids()[:2]) || page.Next != all.ids()[1] {
		t.Errorf("the first page is %+v of %v", page, all.ids())
	}
	if got := runJSON[listing](t, g, "task", "list", "--after", page.Next); !slices.Equal(got.ids(), all.ids()[2:]) {
		t.Errorf("the next page is %+v", got)
	}
	if rows := table(t, g, "task", "list", "--limit", "1"); len(rows) != 3 || rows[2] != "There are more: --after "+all.ids()[0] ||
		!strings.Contains(rows[0], "TASK | USER | MODEL | BACKEND | STATUS") || !strings.Contains(rows[1], " | video-x-1 | studio | queued | 0% | ") {
		t.Errorf("the output is %q", rows)
	}

	s.SetState(gatetest.JobDone)
	for _, id := range []string{first, second, third} {
		g.Until(t, id, task.Success)
	}
	if got := runJSON[listing](t, g, "task", "list", "--status", "success", "--user", bob.UserID); len(got.Items) != 1 || got.Items[0].ID != third || got.Items[0].Charged != "0.80" {
		t.Errorf("the tasks of one user and status are %+v", got)
	}
	if got := runJSON[listing](t, g, "task", "list", "--status", "failed"); len(got.Items) != 0 {
		t.Errorf("the tasks of another status are %+v", got)
	}
	g.Verify(t)
}

func TestTaskShowPrintsBackendHoldAndFailure(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config("max_running 1"))
	ann := g.Payer(t)
	id := gatetest.Submit(t, ann)
	waits := gatetest.Submit(t, ann)
	got := runJSON[gatetest.Task](t, g, "task", "show", id)
	if got.Handover != task.Accepted || got.Backend != "studio" || got.UserID != ann.UserID || got.User == "" || got.Held != "0.80" {
		t.Errorf("the output is %+v", got)
	}
	// All times are in seconds. The deadline is one to three days from now.
	if day := time.Now().Add(23 * time.Hour).Unix(); got.Deadline < day || got.Deadline > day+3*86400 || got.Due > day {
		t.Errorf("due %d, deadline %d", got.Due, got.Deadline)
	}
	rows := strings.Join(table(t, g, "task", "show", id), "\n")
	for _, want := range []string{"task | " + id, "status | queued 0%", "backend | studio", "delivery | accepted", "backend job | job-1", "held | 0.80"} {
		if !strings.Contains(rows, want) {
			t.Errorf("%q is missing in\n%s", want, rows)
		}
	}
	if rows := strings.Join(table(t, g, "task", "show", waits), "\n"); !strings.Contains(rows, "delivery | none") || strings.Contains(rows, "backend job") || strings.Contains(rows, "next step") {
		t.Errorf("the waiting task is\n%s", rows)
	}
	s.SetState(gatetest.JobRejected)
	g.Until(t, id, task.Failed)
	if rows := strings.Join(table(t, g, "task", "show", id), "\n"); !strings.Contains(rows, "failed | CONTENT_REJECTED: rejected") || !strings.Contains(rows, "charged | 0.00") || strings.Contains(rows, "held") {
		t.Errorf("the failed task is\n%s", rows)
	}
}

// TestTaskShowPrintsAFailedCopyOfResults has results at an address that is not allowed.
func TestTaskShowPrintsAFailedCopyOfResults(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App = strings.Replace(config.App, "media off", "base_url https://ai.example.com\nmedia {\npath "+t.TempDir()+"/media\n}", 1)
	g := gatetest.Start(t, config)
	id := gatetest.Submit(t, g.Payer(t))
	s.SetState(strings.ReplaceAll(gatetest.JobDone, "https://files.example.com", s.Address))
	g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("msg") == "cannot copy the results of a task yet" })
	rows := strings.Join(table(t, g, "task", "show", id), "\n")
	if !strings.Contains(rows, "status | in_progress 99%") || !strings.Contains(rows, "copying since | 20") {
		t.Errorf("the task is\n%s", rows)
	}
}

func TestATaskIsCancelledByAnOperator(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config("max_running 1"))
	ann := g.Payer(t)
	runs, waits := gatetest.Submit(t, ann), gatetest.Submit(t, ann)
	if code, _, stderr := g.Command(t, "", "task", "cancel", waits); code != 4 || !strings.Contains(stderr, "not confirmed") {
		t.Errorf("without --yes: exit code %d: %s", code, stderr)
	}
	if got := runJSON[gatetest.Task](t, g, "task", "cancel", waits, "--yes"); got.Status != task.Failed {
		t.Errorf("the waiting task is %+v", got)
	}
	if code, _, stderr := g.Command(t, "", "task", "cancel", runs, "--yes"); code != 4 || !strings.Contains(stderr, "has not confirmed") {
		t.Errorf("a task that cannot be cancelled: exit code %d: %s", code, stderr)
	}
	s.Set(func(s *gatetest.MockService) { s.Cancels = true })
	if code, stdout, stderr := g.Command(t, "y\n", "task", "cancel", runs); code != 0 || !strings.Contains(stdout, "TASK_CANCELLED") {
		t.Errorf("a task that can be cancelled: exit code %d: %s%s", code, stdout, stderr)
	}
	runJSON[gatetest.Task](t, g, "task", "cancel", runs, "--yes") // a second cancellation changes nothing
	for _, id := range []string{runs, waits} {
		g.WaitLine(t, isAudit("task.cancel", id))
	}
	if w := g.WalletAtRest(t, ann.UserID); w.Held != 0 || w.Balance.String() != "100.00" {
		t.Errorf("the wallet has %+v", w)
	}
	g.Verify(t)
}

// isAudit matches the line of the audit log about an action of the operator.
func isAudit(action, detail string) func(gatetest.Line) bool {
	return func(l gatetest.Line) bool {
		return l.Text("logger") == "modelgate.audit" && l.Text("msg") == action && l.Text("detail") == detail && l.Text("actor") == "operator"
	}
}

func TestTaskRetryPollsTheBackendAtOnce(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config("max_running 1"))
	ann := g.Payer(t)
	s.Set(func(s *gatetest.MockService) { s.State, s.RetryAfter = gatetest.JobHalfDone, "600" })
	runs, waits := gatetest.Submit(t, ann), gatetest.Submit(t, ann)
	if now := g.Until(t, runs, task.InProgress); now.Due < time.Now().Add(5*time.Minute).Unix() {
		t.Fatalf("the task ignores Retry-After: %+v", now)
	}
	s.Set(func(s *gatetest.MockService) { s.State, s.RetryAfter = gatetest.JobDone, "" })
	runJSON[gatetest.Task](t, g, "task", "retry", runs)
	g.Until(t, runs, task.Success)
	g.WaitLine(t, isAudit("task.retry", runs))
	g.Until(t, waits, task.Success)
	if code, _, stderr := g.Command(t, "", "task", "retry", waits); code != 4 || !strings.Contains(stderr, "not at a backend") {
		t.Errorf("a retry of an ended task: exit code %d: %s", code, stderr)
	}
}

func TestWatchEndsWhenTheTasksEnd(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config("max_running 2"))
	ann := g.Payer(t)
	if code, stdout, stderr := g.Command(t, "", "task", "watch"); code != 0 || stdout != "" {
		t.Errorf("without tasks: exit code %d: %s%s", code, stdout, stderr)
	}
	one := gatetest.Submit(t, ann)
	if code, stdout, stderr := g.Command(t, "", "task", "watch", one, "--timeout", "1s"); code != 4 || !strings.Contains(stdout, one) || !strings.Contains(stderr, "1 of 1 task is not over after 1s") {
		t.Errorf("after the timeout: exit code %d: %s%s", code, stdout, stderr)
	}
	s.SetState(gatetest.JobDone)
	if code, stdout, stderr := g.Command(t, "", "task", "watch", one); code != 0 || !strings.Contains(stdout, "success") || !strings.Contains(stdout, "https://files.example.com/a.mp4") {
		t.Errorf("a successful task: exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestWatchReportsFailures(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config("max_running 2"))
	ann, bob := g.Payer(t), g.Payer(t)
	s.SetState(gatetest.JobHalfDone)
	two, three, other := gatetest.Submit(t, ann), gatetest.Submit(t, ann), gatetest.Submit(t, bob) // other waits
	g.Until(t, two, task.InProgress)
	g.Until(t, three, task.InProgress)
	var code int
	var stdout, stderr string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		code, stdout, stderr = g.Command(t, "", "task", "watch", "--user", ann.UserID, "--json")
	}()
	g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("uri") == "/modelgate/tasks/watch" })
	s.SetState(gatetest.JobRejected)
	<-ended
	if code != 1 || !strings.Contains(stderr, "2 of 2 tasks failed") || strings.Contains(stdout, other) {
		t.Errorf("failed tasks: exit code %d: %s%s", code, stdout, stderr)
	}
	last := make(map[string]task.State)
	for line := range strings.Lines(stdout) {
		var now gatetest.Task
		if err := json.Unmarshal([]byte(line), &now); err != nil {
			t.Errorf("the output is %q: %v", line, err)
		}
		last[now.ID] = now.Status
	}
	if len(last) != 2 || last[two] != task.Failed || last[three] != task.Failed {
		t.Errorf("the last states are %v", last)
	}
	g.Until(t, other, task.Failed)
}

func TestWatchContinuesAfterAReload(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	g := gatetest.Start(t, config)
	id := gatetest.Submit(t, g.Payer(t))
	type end struct {
		code           int
		stdout, stderr string
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		e.code, e.stdout, e.stderr = g.Command(t, "", "task", "watch", id)
		ended <- e
	}()
	g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("uri") == "/modelgate/tasks/watch" })
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	s.SetState(gatetest.JobDone)
	if e := <-ended; e.code != 0 || !strings.Contains(e.stdout, "success") {
		t.Errorf("exit code %d: %s%s", e.code, e.stdout, e.stderr)
	}
}

func TestExitCodesOfTaskCommands(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config(""))
	const unknown = "task_AAAAAAAAAAAAAAAAAAAAAAAAAA"
	for name, c := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"no verb":               {[]string{"task"}, 2, "a command is missing"},
		"no task to show":       {[]string{"task", "show"}, 2, "wrong number of arguments: 0; allowed: 1"},
		"no such task":          {[]string{"task", "show", unknown}, 3, "no such task"},
		"a task with a slash":   {[]string{"task", "show", "a/b"}, 3, "no such task"},
		"no task to retry":      {[]string{"task", "retry", unknown}, 3, "no such task"},
		"no task to cancel":     {[]string{"task", "cancel", unknown, "--yes"}, 3, "no such task"},
		"no task to watch":      {[]string{"task", "watch", unknown}, 3, "no such task"},
		"two tasks to watch":    {[]string{"task", "watch", "a", "b"}, 2, "too many arguments: 2; allowed: at most 1"},
		"a task and a user":     {[]string{"task", "watch", unknown, "--user", "x"}, 2, "--user and [task] exclude each other"},
		"no time":               {[]string{"task", "watch", "--timeout", "0"}, 2, "--timeout"},
		"too much time":         {[]string{"task", "watch", "--timeout", "73h"}, 2, "at most 72h"},
		"time in words":         {[]string{"task", "watch", "--timeout", "long"}, 2, "--timeout"},
		"tasks of no user":      {[]string{"task", "list", "--user", "nobody"}, 3, `there is no user "nobody"`},
		"watch of no user":      {[]string{"task", "watch", "--user", "nobody"}, 3, `there is no user "nobody"`},
		"an unknown status":     {[]string{"task", "list", "--status", "done"}, 4, "queued, pending, in_progress, success or failed"},
		"a limit of zero":       {[]string{"task", "list", "--limit", "0"}, 2, "--limit 0 is not supported; allowed: 1 to 10000"},
		"too large a limit":     {[]string{"task", "list", "--limit", "10001"}, 2, "--limit 10001 is not supported; allowed: 1 to 10000"},
		"after an unknown task": {[]string{"task", "list", "--after", unknown}, 4, "after is the id of a task in this list"},
		"an empty list":         {[]string{"task", "list"}, 0, ""},
		"callbacks of no user":  {[]string{"callback", "deliveries", "nobody"}, 3, `there is no user "nobody"`},
		"callbacks, no user":    {[]string{"callback", "deliveries"}, 2, "wrong number of arguments: 0; allowed: 1"},
		"no callback":           {[]string{"callback", "redeliver", unknown}, 3, "there is no callback"},
		"drain no backend":      {[]string{"backend", "drain", "nothing"}, 3, `there is no backend "nothing"`},
		"enable no backend":     {[]string{"backend", "enable", "nothing"}, 3, `there is no backend "nothing"`},
		"check no backend":      {[]string{"backend", "check", "nothing"}, 3, `there is no backend "nothing"`},
		"check two backends":    {[]string{"backend", "check", "a", "b"}, 2, "too many arguments: 2; allowed: at most 1"},
		"a backend with slash":  {[]string{"backend", "drain", "a/b"}, 3, "there is no backend"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := g.Command(t, "", c.args...)
			if code != c.code || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d, want %d (%q)\n%s%s", code, c.code, c.stderr, stdout, stderr)
			}
		})
	}
}

func TestTaskShowPrintsThePriceRuleAndTheAccounts(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += "plan 1 Starter {\nprice 9.90\nquota 0.50\nduration 1 month\n}\n"
	g := gatetest.Start(t, config)
	ann := g.Payer(t)
	runJSON[struct{}](t, g, "subscription", "grant", ann.UserID, "1", "--reason", "a present")
	id := gatetest.Submit(t, ann)
	shown := func() (rows []string) {
		t.Helper()
		for _, row := range table(t, g, "task", "show", id) {
			if cells := strings.Split(row, " | "); len(cells) == 4 || cells[0] == "price rule" {
				if rows = append(rows, cells[0]+" "+cells[1]); strings.HasPrefix(cells[0], "quota/1/") {
					rows[len(rows)-1] = "quota/1 " + cells[1]
				}
			}
		}
		return rows
	}
	rows := shown()
	if want := []string{"HELD FROM AMOUNT", "quota/1 0.50", "wallet 0.30"}; len(rows) != 4 || !strings.Contains(rows[0], "0.10") || !slices.Equal(rows[1:], want) {
		t.Errorf("a running task has %q", rows)
	}
	rule := rows[0]
	s.SetState(gatetest.JobDone)
	g.Until(t, id, task.Success)
	if got, want := shown(), []string{rule, "PAID FROM AMOUNT", "quota/1 0.50", "wallet 0.30"}; !slices.Equal(got, want) {
		t.Errorf("an ended task has %q, want %q", got, want)
	}
	g.Verify(t)
}
