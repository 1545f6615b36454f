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

// audit returns the actions of the audit log with their users, latest first for each
// user. Actions without a user are last.
func (f *fixture) audit() (actions []string) {
	f.t.Helper()
	add := func(_, val []byte) bool {
		var e audit.Event
		if err := storage.DecodeRecord(val, &e); err != nil {
			f.t.Error(err)
		}
		action := e.Actor + " " + e.Action + " " + e.Detail
		if e.User != "" {
			action += " of " + e.User + " " + e.Key
		}
		actions = append(actions, action)
		return true
	}
	if err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		for _, bounds := range []string{"audit/0 audit0", "audit// audit/0"} {
			lo, hi, _ := strings.Cut(bounds, " ")
			if err := r.Scan([]byte(lo), []byte(hi), add); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return actions
}

func TestADrainedBackendGetsNoNewTasks(t *testing.T) {
	withFixture(t, func(f *fixture) {
		running := f.mustSubmit(video())
		f.waitStatus(running.ID, record.InProgress, time.Minute)
		for range 2 { // the second call has no effect
			if err := f.Drain(f.t.Context(), "root", "works"); err != nil {
				t.Fatal(err)
			}
		}
		waiting := f.mustSubmit(video())
		f.stop()
		f.start() // the drained state is durable
		f.service.succeed(1)
		f.sleep(95 * time.Second)
		f.wantStatus(running.ID, record.Success)
		f.wantStatus(waiting.ID, record.Queued)
		all, err := f.Backends(f.t.Context())
		if err != nil || len(all) != 1 || !all[0].Drained || all[0].Waiting != 1 || all[0].Running != 0 || all[0].Abandoned() || all[0].MaxRunning != 8 {
			t.Errorf("%+v, %v", all, err)
		}
		if err := f.Enable(f.t.Context(), "root", "works"); err != nil {
			t.Fatal(err)
		}
		f.waitStatus(waiting.ID, record.Success, 10*time.Second)
		for _, set := range []func() error{
			func() error { return f.Drain(f.t.Context(), "root", "nothing") },
			func() error { return f.Enable(f.t.Context(), "root", "nothing") },
		} {
			if err := set(); codeOf(err) != fault.NotFound {
				t.Error(err)
			}
		}
		if got := f.audit(); jsonOf(got) != `["root backend.enable works","root backend.drain works"]` {
			t.Errorf("the audit log has %v", got)
		}
	})
}

func TestRetryProcessesAStuckTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				return backends.Status{}, &backends.Error{Kind: backends.Busy, RetryAfter: time.Hour}
			}
		})
		task := f.mustSubmit(video())
		f.sleep(time.Minute)
		f.service.succeed(1)
		if _, err := f.Retry(f.t.Context(), "root", task.ID); err != nil {
			t.Fatal(err)
		}
		f.sleep(100 * time.Millisecond)
		f.wantStatus(task.ID, record.Success)
		if _, err := f.Retry(f.t.Context(), "root", task.ID); codeOf(err) != fault.Conflict {
			t.Errorf("a finished task: %v", err)
		}
		if _, err := f.Retry(f.t.Context(), "root", record.NewID()); codeOf(err) != fault.TaskNotFound {
			t.Error(err)
		}
		if got := f.audit(); len(got) != 1 || got[0] != "root task.retry "+task.ID+" of "+ann+" "+annKey {
			t.Errorf("the audit log has %v", got)
		}
	})
}

func TestARetryDuringAPollPollsAgain(t *testing.T) {
	withFixture(t, func(f *fixture) {
		task := f.mustSubmit(video())
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				s.set(func(s *mockService) { s.poll = nil })
				if _, err := f.Retry(f.t.Context(), "root", task.ID); err != nil {
					t.Error(err)
				}
				return backends.Status{State: backends.Running, RetryAfter: time.Hour}, nil
			}
		})
		f.sleep(5 * time.Second)
		if n := f.service.polled(task.ID); n < 2 {
			t.Errorf("polled %d times", n)
		}
	})
}

func TestStatsCountPollErrors(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.mustSubmit(video())
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) { return backends.Status{}, errors.New("cut") }
		})
		f.sleep(time.Minute)
		if stats := f.Stats(); stats.PollErrors == 0 || stats.UnknownStatuses != 0 || stats.Losses != 0 {
			t.Errorf("%+v", stats)
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
	withFixture(t, func(f *fixture) {
		if checked, err := f.Check(f.t.Context(), "works"); checked || err != nil {
			t.Errorf("an adapter without a check: %t, %v", checked, err)
		}
		for _, name := range []string{"nothing", "", "a/b"} {
			if _, err := f.Check(f.t.Context(), name); codeOf(err) != fault.NotFound {
				t.Errorf("the backend %q: %v", name, err)
			}
		}
		refused := &backends.Error{Kind: backends.Refused, Message: "no"}
		for name, row := range map[string]struct {
			check func(ctx context.Context) error
			want  string
		}{
			"it would accept a job":       {func(context.Context) error { return nil }, ""},
			"it would refuse a job":       {func(context.Context) error { return refused }, refused.Error()},
			"the adapter panics":          {func(context.Context) error { panic("bug") }, "the adapter panicked: bug"},
			"the adapter does not answer": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, context.DeadlineExceeded.Error()},
		} {
			f.serve(func(c *Config) { c.Backends = []Backend{{Name: "works", Backend: checked{f.service, row.check}}} })
			checked, err := f.Check(f.t.Context(), "works")
			if got := fmt.Sprint(err); !checked || got != cmp.Or(row.want, "<nil>") {
				t.Errorf("%s: %t, %v", name, checked, err)
			}
		}
	})
}

func TestUnfinishedFindsTasksInEachState(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) {
			c.Backends = []Backend{{Name: "works", Backend: f.service, MaxRunning: 2}, {Name: "removed", Backend: f.service}}
		})
		var want []string
		for i, s := range []Submission{video(), with(func(s *Submission) { s.Backend = "removed" }), video(), video()} {
			want = append(want, f.mustSubmit(s).ID)
			f.sleep(time.Duration(i+1) * time.Second)
		}
		finished := f.mustSubmit(with(func(s *Submission) { s.Backend = "removed" }))
		f.service.setStatus(finished.ID, succeeded(1))
		f.waitStatus(finished.ID, record.Success, time.Minute)
		f.serve(func(c *Config) { c.Backends = c.Backends[:1] })

		ids := func(owner record.Owner, limit int) (ids []string, more bool) {
			tasks, more, err := f.Unfinished(f.t.Context(), owner, limit)
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
