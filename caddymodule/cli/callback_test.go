package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// delivery is a callback in the output of commands.
type delivery struct {
	ID       string
	Task     string `json:"task_id"`
	State    task.CallbackState
	Attempts int
	Status   int
	URL      string
}

// delivered waits until the callback of a task was delivered a number of times.
func delivered(t *testing.T, g *gatetest.Gate, user, id string, times int) delivery {
	t.Helper()
	is := func(d delivery) bool { return d.Task == id && d.State == task.Delivered && d.Attempts == times }
	list := gatetest.Eventually(t, fmt.Sprintf("the callback of %s is delivered %d times", id, times), func() (list []delivery, ok bool) {
		var answer struct{ Items []delivery }
		g.MustAdmin(t, http.MethodGet, "/modelgate/callbacks?user="+user, nil, &answer)
		return answer.Items, slices.ContainsFunc(answer.Items, is)
	})
	return list[slices.IndexFunc(list, is)]
}

func TestCallbacksAreListedAndSentAgain(t *testing.T) {
	ids := make(chan string, 10)
	var status atomic.Int64
	status.Store(http.StatusNoContent)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids <- r.Header.Get("Webhook-Id")
		w.WriteHeader(int(status.Load()))
	}))
	defer receiver.Close()
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += `
		callback {
			url ` + receiver.URL + `/done
			secret whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNoaHVzaGh1c2g=
			allow ` + strings.TrimPrefix(receiver.URL, "http://") + `
		}
	`
	g := gatetest.Start(t, config)
	ann, bob := g.Payer(t), g.Payer(t)
	s.SetState(gatetest.JobDone)
	one, two := gatetest.Submit(t, ann), gatetest.Submit(t, ann)
	first := delivered(t, g, ann.UserID, one, 1)
	delivered(t, g, ann.UserID, two, 1)
	if first.URL != receiver.URL+"/done" || first.Status != http.StatusNoContent {
		t.Errorf("the delivery is %+v", first)
	}
	if rows := table(t, g, "callback", "deliveries", ann.UserID); len(rows) != 3 || rows[0] != "ID | TASK | KEY | STATE | ATTEMPTS | LAST | NEXT | ANSWER | URL" ||
		!strings.Contains(rows[1], " | delivered | 1 | 20") || !strings.HasSuffix(rows[1], " | - | 204 | "+receiver.URL+"/done") {
		t.Errorf("the output is %q", rows)
	}
	if rows := table(t, g, "callback", "deliveries", ann.UserID, "--limit", "1"); len(rows) != 3 || !strings.HasPrefix(rows[2], "There are more: --after task_") {
		t.Errorf("a page is %q", rows)
	}
	if rows := table(t, g, "callback", "deliveries", bob.UserID); len(rows) != 1 {
		t.Errorf("the callbacks of another user are %q", rows)
	}

	if got := runJSON[delivery](t, g, "callback", "redeliver", one); got.ID != first.ID || got.State != task.Undelivered {
		t.Errorf("the callback after redeliver is %+v", got)
	}
	again := delivered(t, g, ann.UserID, one, 2)
	if again.ID != first.ID {
		t.Errorf("the redelivered callback is %s, want %s", again.ID, first.ID)
	}
	g.WaitLine(t, isAudit("callback.redeliver", one))
	sent := make(map[string]int)
	for range 3 {
		sent[<-ids]++
	}
	if len(sent) != 2 || sent[first.ID] != 2 {
		t.Errorf("the receiver got %v", sent)
	}
	g.Wait(7 * 24 * time.Hour)
	if code, _, stderr := g.Command(t, "", "callback", "redeliver", one); code != 4 || !strings.Contains(stderr, "for 7 days") {
		t.Errorf("after a week: exit code %d: %s", code, stderr)
	}
}
