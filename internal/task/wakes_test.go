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

// TestATaskIsSentSoonAfterAReadError checks that the driver tries again after the pause of the
// task, and not only after record.Idle.
func TestATaskIsSentSoonAfterAReadError(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 1 })
		first, second := f.mustSubmit(video()), f.mustSubmit(with(long))
		key := storage.Key(record.BodyPrefix, second.ID)
		var body []byte
		write := func(fn func(storage.Txn) error) {
			if err := f.store.Update(context.Background(), fn); err != nil {
				t.Fatal(err)
			}
		}
		write(func(txn storage.Txn) (err error) { // the body cannot be read until it is written again
			if body, err = txn.Get(key); err != nil {
				return err
			}
			return txn.Delete(key)
		})
		f.service.setStatus(first.ID, succeeded(1))
		f.waitStatus(first.ID, record.Success, 10*time.Second)
		write(func(txn storage.Txn) error { return txn.Set(key, body, time.Time{}) })
		began := time.Now()
		for n, _ := f.service.accepted(); n < 2 && time.Since(began) < 5*time.Minute; n, _ = f.service.accepted() {
			f.sleep(time.Second)
		}
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("the task was sent after %v", waited)
		}
	})
}

// TestAClockSetForwardDelaysNoPoll sets the clock of the store forward while a driver sleeps.
func TestAClockSetForwardDelaysNoPoll(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.sleep(61 * time.Second) // the driver has just run
		f.ahead.Store(int64(time.Hour))
		one := f.mustSubmit(video())
		began := time.Now()
		for f.service.polled(one.ID) == 0 && time.Since(began) < 5*time.Minute {
			f.sleep(time.Second)
		}
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("the first poll came after %v", waited)
		}
	})
}

// TestJobsWithoutWebhooksAreNotIndexed checks that tasks at a backend without webhooks are not in
// the index of references. This holds even if the backend of this name sends webhooks later.
// Tasks that were accepted before remain in the index.
func TestJobsWithoutWebhooksAreNotIndexed(t *testing.T) {
	withFixture(t, func(f *fixture) {
		refs := func() (n int) {
			lo, hi := storage.Below(record.RefPrefix)
			if err := f.store.View(context.Background(), func(r storage.Reader) error {
				return r.Scan(lo, hi, func(_, _ []byte) bool { n++; return true })
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		polledAfterWake := func(task *record.Task) bool {
			before := f.service.polled(task.ID)
			if err := f.Wake(context.Background(), "works", "job-"+backends.Token(task.ID)); err != nil {
				t.Fatal(err)
			}
			f.sleep(1100 * time.Millisecond)
			return f.service.polled(task.ID) > before
		}
		f.service.set(func(s *mockService) {
			s.poll = func(*work) (backends.Status, error) {
				return backends.Status{State: backends.Running, RetryAfter: transition.MaxPause}, nil // the next regular poll is far away
			}
		})
		withWebhook := f.mustSubmit(video())
		f.serve(func(c *Config) { c.Backends[0].Backend = silent{f.service} })
		withoutWebhook := f.mustSubmit(video())
		f.sleep(5 * time.Minute)
		if n := refs(); n != 1 {
			t.Errorf("%d references of two jobs, one with webhooks; want 1", n)
		}
		for range 2 {
			if !polledAfterWake(withWebhook) || polledAfterWake(withoutWebhook) {
				t.Error("a webhook must cause a poll only of the job that has webhooks")
			}
			f.checkConsistent()
			f.serve(func(c *Config) { c.Backends[0].Backend = f.service })
			f.sleep(time.Minute)
		}
		before := f.service.polled(withoutWebhook.ID)
		if _, err := f.Cancel(context.Background(), record.OfUser(ann), withoutWebhook.ID); err == nil {
			t.Error("the task was cancelled at a backend that cannot cancel")
		}
		f.sleep(1100 * time.Millisecond)
		if f.service.polled(withoutWebhook.ID) == before {
			t.Error("a failed cancellation does not bring the poll forward")
		}
		f.service.succeed(1)
		f.waitStatus(withWebhook.ID, record.Success, 2*transition.MaxPause)
		f.waitStatus(withoutWebhook.ID, record.Success, 2*transition.MaxPause)
		if n := refs(); n != 0 {
			t.Errorf("%d references of finished tasks are left", n)
		}
	})
}
