package task

import (
	"context"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestATaskIsSentSoonAfterAReadError: after a read error the driver tries again when
// the pause has ended, not only after record.Idle.
func TestATaskIsSentSoonAfterAReadError(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].MaxRunning = 1 })
		first, second := w.must(video()), w.must(with(long))
		key := storage.Key(record.BodyPrefix, second.ID)
		var body []byte
		write := func(fn func(storage.Txn) error) {
			if err := w.store.Update(context.Background(), fn); err != nil {
				t.Fatal(err)
			}
		}
		write(func(txn storage.Txn) (err error) { // as an engine that cannot read it for a moment
			if body, err = txn.Get(key); err != nil {
				return err
			}
			return txn.Delete(key)
		})
		w.service.tells(first.ID, succeeded(1))
		w.until(first.ID, record.Success, 10*time.Second)
		write(func(txn storage.Txn) error { return txn.Set(key, body, time.Time{}) })
		began := time.Now()
		for n, _ := w.service.accepted(); n < 2 && time.Since(began) < 5*time.Minute; n, _ = w.service.accepted() {
			w.sleep(time.Second)
		}
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("it was sent after %v", waited)
		}
	})
}

// TestAClockSetForwardDelaysNoPoll: the clock of the store may be set forward while a
// driver sleeps.
func TestAClockSetForwardDelaysNoPoll(t *testing.T) {
	in(t, func(w *world) {
		w.sleep(61 * time.Second) // the driver has just run
		w.ahead.Store(int64(time.Hour))
		one := w.must(video())
		began := time.Now()
		for w.service.polled(one.ID) == 0 && time.Since(began) < 5*time.Minute {
			w.sleep(time.Second)
		}
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("it was asked for after %v", waited)
		}
	})
}

// TestJobsWithoutWebhooksAreNotIndexed: tasks at a backend without webhooks are not in the
// index of references, also if the backend of this name sends webhooks later. Tasks that
// were accepted before are still found.
func TestJobsWithoutWebhooksAreNotIndexed(t *testing.T) {
	in(t, func(w *world) {
		refs := func() (n int) {
			lo, hi := storage.Below(record.RefPrefix)
			if err := w.store.View(context.Background(), func(r storage.Reader) error {
				return r.Scan(lo, hi, func(_, _ []byte) bool { n++; return true })
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		polledAfterWake := func(task *record.Task) bool {
			before := w.service.polled(task.ID)
			if err := w.Wake(context.Background(), "works", "job-"+backends.Token(task.ID)); err != nil {
				t.Fatal(err)
			}
			w.sleep(1100 * time.Millisecond)
			return w.service.polled(task.ID) > before
		}
		w.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				return backends.Status{State: backends.Running, RetryAfter: transition.MaxPause}, nil // the next regular poll is far away
			}
		})
		withWebhook := w.must(video())
		w.serve(func(c *Config) { c.Backends[0].Backend = silent{w.service} })
		withoutWebhook := w.must(video())
		w.sleep(5 * time.Minute)
		if n := refs(); n != 1 {
			t.Errorf("%d keys of ids of two jobs, one of which the backend tells of", n)
		}
		for range 2 {
			if !polledAfterWake(withWebhook) || polledAfterWake(withoutWebhook) {
				t.Error("what the backend tells of is asked for soon, and nothing else")
			}
			w.checkConsistent()
			w.serve(func(c *Config) { c.Backends[0].Backend = w.service })
			w.sleep(time.Minute)
		}
		before := w.service.polled(withoutWebhook.ID)
		if _, err := w.Cancel(context.Background(), record.OfUser(ann), withoutWebhook.ID); err == nil {
			t.Error("it is cancelled where the backend cannot")
		}
		w.sleep(1100 * time.Millisecond)
		if w.service.polled(withoutWebhook.ID) == before {
			t.Error("a failed cancellation does not bring the poll forward")
		}
		w.service.succeed(1)
		w.until(withWebhook.ID, record.Success, 2*transition.MaxPause)
		w.until(withoutWebhook.ID, record.Success, 2*transition.MaxPause)
		if n := refs(); n != 0 {
			t.Errorf("%d keys of ids of jobs whose tasks are over", n)
		}
	})
}
