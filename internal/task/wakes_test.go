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

// TestATaskThatCouldNotBeReadIsSentSoonAfter: what keeps a driver from sending a
// task is looked at again when the pause is over, not when the driver next looks
// by itself.
func TestATaskThatCouldNotBeReadIsSentSoonAfter(t *testing.T) {
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
		w.works.tells(first.ID, succeeded(1))
		w.until(first.ID, record.Success, 10*time.Second)
		write(func(txn storage.Txn) error { return txn.Set(key, body, time.Time{}) })
		began := time.Now()
		for n, _ := w.works.accepted(); n < 2 && time.Since(began) < 5*time.Minute; n, _ = w.works.accepted() {
			w.sleep(time.Second)
		}
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("it was sent after %v", waited)
		}
	})
}

// TestAClockThatIsSetForwardDelaysNoPoll: a driver that sleeps has noted when it
// will look by the clock, which may be set forward meanwhile.
func TestAClockThatIsSetForwardDelaysNoPoll(t *testing.T) {
	in(t, func(w *world) {
		w.sleep(61 * time.Second) // the driver has just looked
		w.ahead.Store(int64(time.Hour))
		one := w.must(video())
		began := time.Now()
		for w.works.polled(one.ID) == 0 && time.Since(began) < 5*time.Minute {
			w.sleep(time.Second)
		}
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("it was asked for after %v", waited)
		}
	})
}

// TestWhatTellsOfNoJobHasNoKeysOfThem: at a backend that never tells when a job has
// changed nothing leads from its ids to tasks, also when there is another at its
// name later; what was handed over before is found as ever.
func TestWhatTellsOfNoJobHasNoKeysOfThem(t *testing.T) {
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
			before := w.works.polled(task.ID)
			if err := w.Wake(context.Background(), "works", "job-"+backends.Token(task.ID)); err != nil {
				t.Fatal(err)
			}
			w.sleep(1100 * time.Millisecond)
			return w.works.polled(task.ID) > before
		}
		w.works.set(func(s *works) {
			s.poll = func(*work) (backends.Status, error) {
				return backends.Status{State: backends.Running, RetryAfter: transition.MaxPause}, nil // nobody asks by himself
			}
		})
		heard := w.must(video())
		w.serve(func(c *Config) { c.Backends[0].Backend = silent{w.works} })
		unheard := w.must(video())
		w.sleep(5 * time.Minute)
		if n := refs(); n != 1 {
			t.Errorf("%d keys of ids of two jobs, one of which the backend tells of", n)
		}
		for range 2 {
			if !polledAfterWake(heard) || polledAfterWake(unheard) {
				t.Error("what the backend tells of is asked for soon, and nothing else")
			}
			w.sound()
			w.serve(func(c *Config) { c.Backends[0].Backend = w.works })
			w.sleep(time.Minute)
		}
		before := w.works.polled(unheard.ID)
		if _, err := w.Cancel(context.Background(), record.OfUser(ann), unheard.ID); err == nil {
			t.Error("it is cancelled where the backend cannot")
		}
		w.sleep(1100 * time.Millisecond)
		if w.works.polled(unheard.ID) == before {
			t.Error("who wants to cancel it has it asked for soon, whoever tells of it")
		}
		w.works.succeed(1)
		w.until(heard.ID, record.Success, 2*transition.MaxPause)
		w.until(unheard.ID, record.Success, 2*transition.MaxPause)
		if n := refs(); n != 0 {
			t.Errorf("%d keys of ids of jobs whose tasks are over", n)
		}
	})
}
