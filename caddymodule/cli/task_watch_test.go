package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

func TestWatchFollowsMoreTasksThanOneRequestAllows(t *testing.T) {
	t.Parallel()
	const tasks = 3*adminapi.MaxWatched + 7
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in adminapi.WatchRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Known) == 0 || len(in.Known) > adminapi.MaxWatched {
			t.Errorf("%d tasks are watched: %v", len(in.Known), err)
		}
		if maxWait := int64(watchWait / time.Second); in.Wait < 1 || in.Wait > maxWait {
			t.Errorf("the wait is %d s", in.Wait)
		}
		requests++
		var answer adminapi.WatchResponse
		for id, state := range in.Known { // each task runs first and then ends
			one := adminapi.Task{Task: task.Task{ID: id, Status: task.InProgress, Progress: "50%"}}
			switch {
			case id == "task 0":
				answer.Gone = append(answer.Gone, id)
				continue
			case id == "task 1" && state != "":
				one.Task = task.Task{ID: id, Status: task.Failed, CompletedAt: 1, Error: &task.Error{Reason: backends.ModelFailed, Message: "m"}}
			case state != "":
				one.Task = task.Task{ID: id, Status: task.Success, CompletedAt: 1, Result: &task.Result{URL: "u"}}
			}
			answer.Items = append(answer.Items, one)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	var out strings.Builder
	w := watcher{client: &client{origin: server.URL}, out: &out, known: make(map[string]string), end: time.Now().Add(time.Minute)}
	for i := range tasks {
		w.next = append(w.next, fmt.Sprint("task ", i))
	}
	if err := w.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.gone != 1 || w.failed != 1 || len(w.known)+len(w.next) != 0 {
		t.Errorf("%d gone, %d failed, %d left", w.gone, w.failed, len(w.known)+len(w.next))
	}
	for words, want := range map[string]int{"  in_progress   50%": tasks - 1, "  success": tasks - 2, "  failed": 1, "MODEL_FAILED: m\n": 1} {
		if n := strings.Count(out.String(), words); n != want {
			t.Errorf("%q is printed %d times, want %d", words, n, want)
		}
	}
	if requests > 2*tasks/adminapi.MaxWatched+2 {
		t.Errorf("%d requests for %d tasks", requests, tasks)
	}
}

func TestWatchEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(adminapi.WatchResponse{})
	}))
	defer server.Close()
	w := watcher{client: &client{origin: server.URL}, known: map[string]string{"task": "queued 0%"}, end: time.Now().Add(20 * time.Millisecond)}
	if err := w.follow(t.Context()); err != nil || len(w.known) != 1 {
		t.Errorf("%v, %v", w.known, err)
	}
}
