package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// audit returns the actions of the audit log with their users: those of each user,
// latest first, then those without a user.
func (w *world) audit() (actions []string) {
	w.t.Helper()
	add := func(_, val []byte) bool {
		var e audit.Event
		if err := storage.DecodeRecord(val, &e); err != nil {
			w.t.Error(err)
		}
		action := e.Actor + " " + e.Action + " " + e.Detail
		if e.User != "" {
			action += " of " + e.User + " " + e.Key
		}
		actions = append(actions, action)
		return true
	}
	if err := w.store.View(w.t.Context(), func(r storage.Reader) error {
		for _, bounds := range []string{"audit/0 audit0", "audit// audit/0"} {
			lo, hi, _ := strings.Cut(bounds, " ")
			if err := r.Scan([]byte(lo), []byte(hi), add); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return actions
}

func TestADrainedBackendGetsNoNewTasks(t *testing.T) {
	in(t, func(w *world) {
		running := w.must(video())
		w.until(running.ID, record.InProgress, time.Minute)
		for range 2 { // twice is once
			if err := w.Drain(w.t.Context(), "root", "works"); err != nil {
				t.Fatal(err)
			}
		}
		waiting := w.must(video())
		w.stop()
		w.start() // it is durable
		w.service.succeed(1)
		w.sleep(95 * time.Second)
		w.is(running.ID, record.Success)
		w.is(waiting.ID, record.Queued)
		all, err := w.Backends(w.t.Context())
		if err != nil || len(all) != 1 || !all[0].Drained || all[0].Waiting != 1 || all[0].Running != 0 || all[0].Abandoned() || all[0].MaxRunning != 8 {
			t.Errorf("%+v, %v", all, err)
		}
		if err := w.Enable(w.t.Context(), "root", "works"); err != nil {
			t.Fatal(err)
		}
		w.until(waiting.ID, record.Success, 10*time.Second)
		for _, set := range []func() error{
			func() error { return w.Drain(w.t.Context(), "root", "nothing") },
			func() error { return w.Enable(w.t.Context(), "root", "nothing") },
		} {
			if err := set(); codeOf(err) != fault.NotFound {
				t.Error(err)
			}
		}
		if got := w.audit(); jsonOf(got) != `["root backend.enable works","root backend.drain works"]` {
			t.Errorf("the audit has %v", got)
		}
	})
}

func TestRetryProcessesAStuckTask(t *testing.T) {
	in(t, func(w *world) {
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				return backends.Status{}, &backends.Error{Kind: backends.Busy, RetryAfter: time.Hour}
			}
		})
		task := w.must(video())
		w.sleep(time.Minute)
		w.service.succeed(1)
		if _, err := w.Retry(w.t.Context(), "root", task.ID); err != nil {
			t.Fatal(err)
		}
		w.sleep(100 * time.Millisecond)
		w.is(task.ID, record.Success)
		if _, err := w.Retry(w.t.Context(), "root", task.ID); codeOf(err) != fault.Conflict {
			t.Errorf("one that is over: %v", err)
		}
		if _, err := w.Retry(w.t.Context(), "root", record.NewID()); codeOf(err) != fault.TaskNotFound {
			t.Error(err)
		}
		if got := w.audit(); len(got) != 1 || got[0] != "root task.retry "+task.ID+" of "+ann+" "+annKey {
			t.Errorf("the audit has %v", got)
		}
	})
}

func TestARetryDuringAPollPollsAgain(t *testing.T) {
	in(t, func(w *world) {
		task := w.must(video())
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				s.set(func(s *mockService) { s.poll = nil })
				if _, err := w.Retry(w.t.Context(), "root", task.ID); err != nil {
					t.Error(err)
				}
				return backends.Status{State: backends.Running, RetryAfter: time.Hour}, nil
			}
		})
		w.sleep(5 * time.Second)
		if n := w.service.polled(task.ID); n < 2 {
			t.Errorf("polled %d times", n)
		}
	})
}

func TestFigures(t *testing.T) {
	in(t, func(w *world) {
		w.must(video())
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) { return backends.Status{}, errors.New("cut") }
		})
		w.sleep(time.Minute)
		if f := w.Stats(); f.PollErrors == 0 || f.UnknownStatuses != 0 || f.Losses != 0 {
			t.Errorf("%+v", f)
		}
	})
}

// checked is a service that implements Checker.
type checked struct {
	*mockService
	check func(ctx context.Context) error
}

func (c checked) Check(ctx context.Context) error { return c.check(ctx) }

func TestCheckOfABackend(t *testing.T) {
	in(t, func(w *world) {
		if asked, err := w.Check(w.t.Context(), "works"); asked || err != nil {
			t.Errorf("an adapter without a check: %t, %v", asked, err)
		}
		for _, name := range []string{"nothing", "", "a/b"} {
			if _, err := w.Check(w.t.Context(), name); codeOf(err) != fault.NotFound {
				t.Errorf("the backend %q: %v", name, err)
			}
		}
		refused := &backends.Error{Kind: backends.Refused, Message: "no"}
		for name, row := range map[string]struct {
			check func(ctx context.Context) error
			want  string
		}{
			"it would take one":     {func(context.Context) error { return nil }, ""},
			"it would not":          {func(context.Context) error { return refused }, refused.Error()},
			"the adapter panics":    {func(context.Context) error { panic("bug") }, "the adapter panicked: bug"},
			"the adapter says none": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, context.DeadlineExceeded.Error()},
		} {
			w.serve(func(c *Config) { c.Backends = []Backend{{Name: "works", Backend: checked{w.service, row.check}}} })
			asked, err := w.Check(w.t.Context(), "works")
			if got := fmt.Sprint(err); !asked || got != cmp.Or(row.want, "<nil>") {
				t.Errorf("%s: %t, %v", name, asked, err)
			}
		}
	})
}

func TestUnfinishedFindsTasksInEachState(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) {
			c.Backends = []Backend{{Name: "works", Backend: w.service, MaxRunning: 2}, {Name: "away", Backend: w.service}}
		})
		var want []string
		for i, s := range []Submission{video(), with(func(s *Submission) { s.Backend = "away" }), video(), video()} {
			want = append(want, w.must(s).ID)
			w.sleep(time.Duration(i+1) * time.Second)
		}
		over := w.must(with(func(s *Submission) { s.Backend = "away" }))
		w.service.tells(over.ID, succeeded(1))
		w.until(over.ID, record.Success, time.Minute)
		w.serve(func(c *Config) { c.Backends = c.Backends[:1] })

		ids := func(owner record.Owner, most int) (ids []string, more bool) {
			tasks, more, err := w.Unfinished(w.t.Context(), owner, most)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range tasks {
				ids = append(ids, one.ID)
			}
			return ids, more
		}
		for _, owner := range []record.Owner{record.Anyone, record.OfUser(ann), record.OfKey(annKey)} {
			if got, more := ids(owner, 4); more || jsonOf(got) != jsonOf(want) {
				t.Errorf("of %v: %v, %t; want %v", owner, got, more, want)
			}
		}
		for _, owner := range []record.Owner{record.OfUser("user_bob"), record.OfKey(annKey2), {}} {
			if got, more := ids(owner, 4); more || len(got) != 0 {
				t.Errorf("of %v: %v, %t", owner, got, more)
			}
		}
		if got, more := ids(record.Anyone, 3); !more || len(got) != 3 {
			t.Errorf("three of four: %v, %t", got, more)
		}
	})
}
