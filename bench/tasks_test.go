package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/identity"
	ledgerverify "github.com/caddy-modelgate/modelgate/internal/ledger/verify"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/internal/task/verify"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestEachConnectionQueriesOneTask(t *testing.T) {
	t.Parallel()
	site := target{Address: "127.0.0.1:80", Keys: []string{"sk-one"}, TaskPaths: []string{"/a", "/b"}}
	for n, want := range []string{"/a", "/b", "/a"} {
		sent := string(site.request(n, "", nil))
		if !strings.HasPrefix(sent, "GET "+want+" HTTP/1.1\r\n") || !strings.Contains(sent, "Authorization: Bearer sk-one\r\n") {
			t.Errorf("connection %d: want %s, got\n%s", n, want, sent)
		}
	}
}

// jobStatus returns the status of a job at a mockService, and its recorded times.
func jobStatus(t *testing.T, mockService http.Handler, id string) (status string, recorded work) {
	t.Helper()
	var job struct{ Status string }
	requestJSON(t, mockService, http.MethodGet, tasksPath+id, "", &job)
	requestJSON(t, mockService, http.MethodGet, workPath+id, "", &recorded)
	return job.Status, recorded
}

// requestJSON sends a request to a mockService and decodes the answer.
func requestJSON(t *testing.T, mockService http.Handler, method, path, body string, into any) {
	t.Helper()
	w := httptest.NewRecorder()
	mockService.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s %s: %d %s: %v", method, path, w.Code, w.Body, err)
	}
}

func TestAJobIsCompleteAfterItsFirstPoll(t *testing.T) {
	t.Parallel()
	mockService := newBackend()
	var taken struct {
		ID string `json:"task_id"`
	}
	requestJSON(t, mockService, http.MethodPost, submitPath, `{"prompt":"a cat","session_id":"job"}`, &taken)
	before := time.Now().UnixNano()
	status, first := jobStatus(t, mockService, taken.ID)
	if status != "in_progress" || first.Completed < before || first.Reported != 0 {
		t.Errorf("%s, %+v", status, first)
	}
	status, second := jobStatus(t, mockService, taken.ID)
	if status != "success" || second.Completed != first.Completed || second.Reported <= first.Completed {
		t.Errorf("%s, %+v", status, second)
	}
	requestJSON(t, mockService, http.MethodPost, submitPath, `{"prompt":"a cat","session_id":"job"}`, &taken)
	if status, again := jobStatus(t, mockService, taken.ID); status != "success" || again != second {
		t.Errorf("submitted twice: %s, %+v", status, again)
	}
}

func TestAnEndlessJobIsNeverComplete(t *testing.T) {
	t.Parallel()
	mockService := newBackend()
	var taken struct {
		ID string `json:"task_id"`
	}
	requestJSON(t, mockService, http.MethodPost, submitPath, string(marshal(map[string]any{"prompt": endless, "session_id": "job"})), &taken)
	for range 3 {
		if status, recorded := jobStatus(t, mockService, taken.ID); status != "in_progress" || recorded.Completed != 0 {
			t.Errorf("%s, %+v", status, recorded)
		}
	}
}

// verifyTasks verifies the tasks of a store and its ledger. It returns the report on the
// ledger.
func verifyTasks(t *testing.T, b *testStore) (r ledgerverify.Report) {
	t.Helper()
	now := b.store.Now()
	err := b.store.View(t.Context(), func(reader storage.Reader) error {
		return verify.Tasks(reader, now, t.Errorf)
	})
	if err != nil {
		t.Fatal(err)
	}
	return verifyStore(t, b)
}

func TestSubmissionsAndCommitsAlternate(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	o := besideOrder{besideCommits: besideCommits{Concurrency: 8, Users: 5}, Turns: turns{Warm: time.Millisecond, Slice: 5 * time.Millisecond, Rounds: 2}}
	p, err := o.submitTasks(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for n, s := range p {
		if s.Units < int64(o.Turns.Rounds*o.Concurrency) || s.Took < time.Duration(o.Turns.Rounds)*o.Turns.Slice || s.CPU <= 0 {
			t.Errorf("group %d: %d units in %v with %v of a core", n, s.Units, s.Took, s.CPU)
		}
		if s.P50 <= 0 || s.P99 < s.P50 {
			t.Errorf("group %d: p50 %v, p99 %v", n, s.P50, s.P99)
		}
	}
	if r := verifyTasks(t, b); r.Transfers < p[1].Units {
		t.Errorf("%d submissions were counted, the ledger has %d holds", p[1].Units, r.Transfers)
	}
}

// Tasks and keys of taskSeed must be accepted by the gateway.
func TestABacklogWaitsAndCanBeQueried(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newTestStore(t)
	const tasks = 3*backlogKeys + 7
	keys, err := taskSeed{Tasks: tasks}.fill(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	directory, err := identity.Open(ctx, b.store, nil, discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	engine := task.Open(b.store, b.ledger, task.Options{})
	defer engine.Close(ctx)
	for _, key := range keys {
		p, ok := directory.Authenticate(key.Secret)
		if !ok {
			t.Fatal("a key of the backlog is refused")
		}
		if one, err := engine.Get(ctx, task.OfKey(p.KeyID), key.Task); err != nil || one.Status != task.Queued || one.Detail.Held != taskPrice {
			t.Errorf("%+v, %v", one, err)
		}
	}
	all, err := engine.Backends(ctx)
	if err != nil || len(all) != 1 || all[0].Waiting != tasks || all[0].Running != 0 || !all[0].Drained {
		t.Errorf("%+v, %v", all, err)
	}
	verifyTasks(t, b)
}

func TestARowWithoutABoundDoesNotFail(t *testing.T) {
	t.Parallel()
	w := row{label: "p99", figure: tailLatency, unit: microseconds, compare: ratio}
	if got := w.judge(1000, false); got != shown || w.bound(w.must) != "–" {
		t.Errorf("%q, bound %q", got, w.bound(w.must))
	}
	r := report{Rows: []result{{Verdict: shown}}}
	if !r.met() {
		t.Error("a row without a bound fails the run")
	}
}
