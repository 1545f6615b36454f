package task

import (
	"errors"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/storage"
)

// audit returns the actions of the audit, latest first.
func (w *world) audit() (actions []string) {
	w.t.Helper()
	prefix := []byte("audit/")
	if err := w.view(w.t.Context(), func(r storage.Reader) error {
		return r.Scan(prefix, storage.PrefixEnd(prefix), func(_, val []byte) bool {
			var e identity.Event
			if err := storage.DecodeRecord(val, &e); err != nil {
				w.t.Error(err)
			}
			actions = append(actions, e.Actor+" "+e.Action+" "+e.Detail)
			return true
		})
	}); err != nil {
		w.t.Fatal(err)
	}
	return actions
}

func TestADrainedBackendGetsNothingNew(t *testing.T) {
	in(t, func(w *world) {
		running := w.must(video())
		w.until(running.ID, InProgress, time.Minute)
		for range 2 { // twice is once
			if err := w.Drain(w.t.Context(), "root", "works"); err != nil {
				t.Fatal(err)
			}
		}
		waiting := w.must(video())
		w.stop()
		w.start() // it is durable
		w.works.succeed(1)
		w.sleep(95 * time.Second)
		w.is(running.ID, Success)
		w.is(waiting.ID, Queued)
		all, err := w.Backends(w.t.Context())
		if err != nil || len(all) != 1 || !all[0].Drained || all[0].Waiting != 1 || all[0].Running != 0 || all[0].Abandoned() || all[0].MaxRunning != 8 {
			t.Errorf("%+v, %v", all, err)
		}
		if err := w.Enable(w.t.Context(), "root", "works"); err != nil {
			t.Fatal(err)
		}
		w.until(waiting.ID, Success, 10*time.Second)
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

func TestAnOperatorHasAStuckTaskLookedAt(t *testing.T) {
	in(t, func(w *world) {
		w.works.set(func(s *works) {
			s.poll = func(*work) (backends.Status, error) {
				return backends.Status{}, &backends.Error{Kind: backends.Busy, RetryAfter: time.Hour}
			}
		})
		task := w.must(video())
		w.sleep(time.Minute)
		w.works.succeed(1)
		if _, err := w.Retry(w.t.Context(), "root", task.ID); err != nil {
			t.Fatal(err)
		}
		w.sleep(100 * time.Millisecond)
		w.is(task.ID, Success)
		if _, err := w.Retry(w.t.Context(), "root", task.ID); codeOf(err) != fault.Conflict {
			t.Errorf("one that is over: %v", err)
		}
		if _, err := w.Retry(w.t.Context(), "root", newID()); codeOf(err) != fault.TaskNotFound {
			t.Error(err)
		}
		if got := w.audit(); len(got) != 1 || got[0] != "root task.retry "+task.ID {
			t.Errorf("the audit has %v", got)
		}
	})
}

func TestARetryDuringALookFollowsIt(t *testing.T) {
	in(t, func(w *world) {
		task := w.must(video())
		w.works.set(func(s *works) {
			s.poll = func(*work) (backends.Status, error) {
				s.set(func(s *works) { s.poll = nil })
				if _, err := w.Retry(w.t.Context(), "root", task.ID); err != nil {
					t.Error(err)
				}
				return backends.Status{State: backends.Running, RetryAfter: time.Hour}, nil
			}
		})
		w.sleep(5 * time.Second)
		if n := w.works.polled(task.ID); n < 2 {
			t.Errorf("polled %d times", n)
		}
	})
}

func TestFiguresCountWhatAnOperatorMustKnow(t *testing.T) {
	in(t, func(w *world) {
		w.must(video())
		w.works.set(func(s *works) {
			s.poll = func(*work) (backends.Status, error) { return backends.Status{}, errors.New("cut") }
		})
		w.sleep(time.Minute)
		if f := w.Figures(); f.PollErrors == 0 || f.Strange != 0 || f.Losses != 0 {
			t.Errorf("%+v", f)
		}
	})
}
