package caddymodule_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// configured tells by name which backends of an engine are configured.
func configured(t *testing.T, tasks *task.Engine) map[string]bool {
	t.Helper()
	all, err := tasks.Backends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, b := range all {
		names[b.Name] = b.Configured
	}
	return names
}

// allSucceed waits until no task is unfinished and checks the number of successful tasks.
func allSucceed(t *testing.T, runtime *caddymodule.Runtime, user string, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*gatetest.Timeout)
	defer cancel()
	for {
		left, _, err := runtime.Tasks.Unfinished(t.Context(), task.Anyone, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		if _, err := runtime.Tasks.Wait(ctx, task.Anyone, left[0].ID, task.MaxWait); err != nil {
			t.Fatalf("still unfinished: %+v: %v", left[0], err)
		}
	}
	succeeded, after := 0, ""
	for {
		page, next, err := runtime.Tasks.List(t.Context(), task.OfUser(user), task.Page{After: after, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page {
			if one.Status == task.Success {
				succeeded++
			}
		}
		if after = next; next == "" {
			break
		}
	}
	if succeeded != want {
		t.Errorf("%d tasks have succeeded, want %d", succeeded, want)
	}
}

func TestAReloadLosesNoTaskAndPollsNoneTwice(t *testing.T) {
	const tasks = 1000
	s := serviceOf("reloaded")
	g := gatetest.Start(t, mockConfig("reloaded", ""))
	key := g.NewKey(t, nil)
	var submitting sync.WaitGroup
	for range 20 {
		submitting.Go(func() {
			for range tasks / 20 {
				gatetest.Submit(t, key)
			}
		})
	}
	submitting.Wait()
	before := s.last()
	// The old adapter runs the maximum number of polls when it is cleaned up. No other
	// poll begins before they end.
	const maxPolls = 64
	s.with(func() { s.release = make(chan struct{}) })
	s.waitForBlocked(t, maxPolls)
	polls := 0
	s.with(func() { polls = s.polls[before] })
	if err := g.Reload(mockConfig("reloaded", "max_running 2000")); err != nil {
		t.Fatal(err)
	}
	s.with(func() {
		if !s.cleaned[before] {
			t.Error("the old adapter was not cleaned up")
		}
		close(s.release)
		s.release, s.finished = nil, true
	})
	// The running polls end. From then on only the new adapter polls.
	allSucceed(t, gatetest.Runtime(t), key.UserID, tasks)
	s.submittedOnce(t, tasks)
	s.with(func() {
		if s.concurrent > 0 {
			t.Errorf("%d polls of a job ran during another poll of it", s.concurrent)
		}
		if s.polls[before] != polls {
			t.Errorf("an adapter polled %d times after its cleanup", s.polls[before]-polls)
		}
	})
	g.Verify(t)
}

func TestTasksPauseWithoutAConfigurationAndContinueWithTheNext(t *testing.T) {
	s := serviceOf("resting")
	config := mockConfig("resting", "max_running 1")
	config.Store = t.Name()
	config.App += "callback {\n url https://hooks.example/x\n secret whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNoaHVzaGh1c2g=\n}\n"
	g := gatetest.Start(t, config)
	key := g.NewKey(t, nil)
	running, waiting := gatetest.Submit(t, key), gatetest.Submit(t, key)
	resp, end := stream(t, g, key.Secret, "holds-the-runtime")
	runtime := gatetest.Runtime(t)
	if !configured(t, runtime.Tasks)["resting"] {
		t.Fatal("the backend is not configured at the start")
	}

	elsewhere := longGrace
	elsewhere.Store = t.Name() + "-elsewhere"
	if err := g.Reload(elsewhere); err != nil {
		t.Fatal(err)
	}
	if configured(t, runtime.Tasks)["resting"] {
		t.Error("the engine still uses adapters that were cleaned up")
	}
	// The last configuration still sends the callback of a task that ends now.
	if _, err := runtime.Tasks.Cancel(t.Context(), task.OfKey(key.ID), waiting); err != nil {
		t.Fatal(err)
	}
	if list, _, err := runtime.Tasks.Callbacks(t.Context(), key.UserID, "", 10); err != nil || len(list) != 1 || list[0].Task != waiting {
		t.Errorf("the callbacks are %+v, %v", list, err)
	}

	config.App = strings.ReplaceAll(config.App, "max_running 1", "max_running 2")
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	if gatetest.Runtime(t) != runtime {
		t.Fatal("the store was not kept open by its stream")
	}
	s.with(func() { s.finished = true })
	g.Until(t, running, task.Success)
	s.submittedOnce(t, 1)
	finish(t, g, resp, end)
	g.Verify(t)
}

func TestAFailedReloadLeavesTasksToTheActiveConfiguration(t *testing.T) {
	s := serviceOf("before")
	g := gatetest.Start(t, mockConfig("before", ""))
	key := g.NewKey(t, nil)
	id := gatetest.Submit(t, key)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	other := strings.Replace(g.Caddyfile(mockConfig("after", "")), "http://:", "http://"+taken.Addr().String()+" {\n bind 127.0.0.1\n respond ok\n}\nhttp://:", 1)
	for range 8 { // apps start in any order
		if err := g.ReloadText(other); err == nil {
			t.Fatal("a configuration started with an address in use")
		}
		if now := configured(t, gatetest.Runtime(t).Tasks); !now["before"] || now["after"] {
			t.Fatalf("the backends are %v", now)
		}
	}
	s.with(func() { s.finished = true })
	g.Until(t, id, task.Success)
	s.with(func() {
		if s.cleaned[1] {
			t.Error("the adapter in force was cleaned up")
		}
	})
}

func TestTasksOfARemovedBackendWaitAndAreReported(t *testing.T) {
	s := serviceOf("gone")
	g := gatetest.Start(t, mockConfig("gone", ""))
	key := g.NewKey(t, nil)
	id := gatetest.Submit(t, key)
	if err := g.Reload(mockConfig("instead", "")); err != nil {
		t.Fatal(err)
	}
	line := g.WaitLine(t, func(line gatetest.Line) bool {
		return strings.HasPrefix(line.Text("msg"), "tasks wait for a backend")
	})
	if line.Text("backend") != "gone" || line.Text("level") != "warn" {
		t.Errorf("logged %v", line)
	}
	store := `store="gatetest:` + g.Store + `"`
	if got := series(t, g)[`modelgate_tasks_abandoned{backend="gone",`+store+`}`]; got != "1" {
		t.Errorf("the metric is %q", got)
	}
	s.with(func() { s.finished = true })
	// A backend that is configured again finishes its tasks, even without models.
	if err := g.Reload(gatetest.Config{Site: gatetest.Proxied, App: "media off\nbackend gone {\n adapter mock gone\n}"}); err != nil {
		t.Fatal(err)
	}
	g.Until(t, id, task.Success)
	s.submittedOnce(t, 1)
}

func TestVerifyChecksTasks(t *testing.T) {
	g := gatetest.Start(t, mockConfig("verified", ""))
	gatetest.Submit(t, g.NewKey(t, nil))
	g.Verify(t)
	runtime := gatetest.Runtime(t)
	err := runtime.Store.Update(t.Context(), func(tx storage.Txn) error {
		return tx.Set([]byte("taskload/verified"), storage.EncodeRecord(map[string]int{"running": 7, "last": 1}), time.Time{})
	})
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := g.Command(t, "", "verify")
	if code != 1 || !strings.Contains(stdout, "tasks: backend verified") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
}

func TestMetricsCountTasksByTypeAndStatus(t *testing.T) {
	s := serviceOf("counted")
	g := gatetest.Start(t, mockConfig("counted", "max_running 1"))
	key := g.NewKey(t, nil)
	one, two := gatetest.Submit(t, key), gatetest.Submit(t, key)
	store := `store="gatetest:` + g.Store + `"`
	before := series(t, g)
	for name, want := range map[string]string{
		`modelgate_tasks_submitted_total{` + store + `,type="video"}`:                              "2",
		`modelgate_tasks_submitted_total{` + store + `,type="image"}`:                              "0",
		`modelgate_tasks_ended_total{status="success",` + store + `,type="video"}`:                 "0",
		`modelgate_tasks_unfinished{backend="counted",status="queued",` + store + `,type="video"}`: "2",
		`modelgate_callbacks_waiting{` + store + `}`:                                               "0",
		`modelgate_callbacks_total{outcome="delivered",` + store + `}`:                             "0",
		`modelgate_media_copies_total{` + store + `}`:                                              "0",
	} {
		if before[name] != want {
			t.Errorf("%s is %q, want %s", name, before[name], want)
		}
	}
	g.Wait(2 * time.Minute) // the backlog is cached for one
	if age := number(series(t, g)[`modelgate_tasks_oldest_seconds{`+store+`}`]); age < 110 || age > 200 {
		t.Errorf("the oldest task is %v s old, want two minutes", age)
	}
	s.with(func() { s.finished = true })
	g.Until(t, one, task.Success)
	g.Until(t, two, task.Success)
	g.Wait(2 * time.Minute)
	after := series(t, g)
	if after[`modelgate_tasks_ended_total{status="success",`+store+`,type="video"}`] != "2" || number(after[`modelgate_task_polls_total{`+store+`}`]) < 2 {
		t.Errorf("the metrics after the end are %v", after)
	}
	for name := range after {
		if strings.HasPrefix(name, "modelgate_tasks_unfinished") {
			t.Errorf("%s is still exported", name)
		}
		for _, word := range []string{key.ID, key.UserID, one, two, "video-x-1"} {
			if strings.Contains(name, word) {
				t.Errorf("%s holds %q", name, word)
			}
		}
	}
}

func TestReadinessNeedsOneUsableBackend(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.Site += "\nmodelgate_health"
	config.App += "backend spare {\n adapter mock spare\n}"
	g := gatetest.Start(t, config)
	ready := func() (int, string) {
		if calls := g.Do(t, http.MethodGet, "/readyz", "", ""); calls.Status != http.StatusOK || calls.Body != `{"status":"ready"}` {
			t.Errorf("/readyz of model calls gets %d %s", calls.Status, calls.Body)
		}
		answer := g.Do(t, http.MethodGet, "/readyz/tasks", "", "")
		return answer.Status, answer.Body
	}
	runtime := gatetest.Runtime(t)
	drain := func(names ...string) {
		for _, name := range names {
			if err := runtime.Tasks.Drain(t.Context(), "operator", name); err != nil {
				t.Fatal(err)
			}
		}
	}
	drain("spare")
	if status, body := ready(); status != http.StatusOK {
		t.Errorf("with one of two drained: %d %s", status, body)
	}
	// The service now refuses every request. A backend is unusable after two refusals.
	s.Set(func(s *gatetest.MockService) { s.Key = "another" })
	refusals := 0
	gatetest.Eventually(t, "it is not ready", func() (body string, ok bool) {
		status, body := ready()
		if status == http.StatusServiceUnavailable && body == `{"status":"unavailable","reasons":["backends"]}` {
			return body, true
		}
		refusals++
		g.Wait(30 * time.Second)
		return body, false
	})
	g.WaitLine(t, func(line gatetest.Line) bool {
		why := line.Text("error")
		return line.Text("reason") == "backends" && strings.Contains(why, "backend studio: its service does not take tasks") && strings.Contains(why, "backend spare: it is drained")
	})
	if refusals < 2 {
		t.Errorf("it was not ready after %d refusals", refusals)
	}
	if err := runtime.Tasks.Enable(t.Context(), "operator", "spare"); err != nil {
		t.Fatal(err)
	}
	if status, body := ready(); status != http.StatusOK {
		t.Errorf("with the spare backend: %d %s", status, body)
	}
}

func TestNoCallbackIsSentAfterTheReceiverIsGone(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer receiver.Close()
	s := serviceOf("notified")
	s.with(func() { s.finished = true })
	config := mockConfig("notified", "")
	config.App += `
		callback {
			url ` + receiver.URL + `/done
			secret whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNoaHVzaGh1c2g=
			allow ` + strings.TrimPrefix(receiver.URL, "http://") + `
		}
	`
	g := gatetest.Start(t, config)
	key := g.NewKey(t, nil)
	runtime := gatetest.Runtime(t)
	deliveries := func() []task.Callback {
		list, _, err := runtime.Tasks.Callbacks(t.Context(), key.UserID, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	first := gatetest.Submit(t, key)
	g.Until(t, first, task.Success)
	gatetest.Eventually(t, "the callback of the first is dead", func() (list []task.Callback, ok bool) {
		list = deliveries()
		return list, len(list) == 1 && list[0].State == task.Dead
	})
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("logger") == "modelgate.audit" && l.Text("msg") == "key.callback_gone" && l.Text("actor") == "callback receiver" &&
			l.Text("key_id") == key.ID && l.Text("user_id") == key.UserID
	})
	second := gatetest.Submit(t, key)
	g.Until(t, second, task.Success)
	if list := deliveries(); len(list) != 1 {
		t.Errorf("the second task has a callback: %+v", list)
	}
	code, stdout, _ := g.Command(t, "", "key", "list", "--json")
	if code != 0 || !strings.Contains(stdout, `"callback_disabled":`) {
		t.Errorf("key list prints %s", stdout)
	}
	if got := series(t, g)[`modelgate_callbacks_total{outcome="dead",store="gatetest:`+g.Store+`"}`]; got != "1" {
		t.Errorf("the metric is %q", got)
	}
	// Another key gets callbacks, and so does this key at another address.
	other := g.NewKey(t, nil)
	third := gatetest.Submit(t, other)
	g.Until(t, third, task.Success)
	if list, _, err := runtime.Tasks.Callbacks(t.Context(), other.UserID, "", 10); err != nil || len(list) != 1 {
		t.Errorf("the callbacks of another key are %+v, %v", list, err)
	}
	config.App = strings.ReplaceAll(config.App, "/done", "/other")
	if err := g.Reload(config); err != nil {
		t.Fatal(err)
	}
	g.Until(t, gatetest.Submit(t, key), task.Success)
	if list := deliveries(); len(list) != 2 {
		t.Errorf("the callbacks after a change of the address are %+v", list)
	}
	g.Verify(t)
}
