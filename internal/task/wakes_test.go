package task

import (
	"context"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// TestATaskThatCouldNotBeReadIsSentSoonAfter: what keeps a driver from sending a
// task is looked at again when the pause is over, not when the driver next looks
// by itself.
func TestATaskThatCouldNotBeReadIsSentSoonAfter(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].MaxRunning = 1 })
		first, second := w.must(video()), w.must(with(long))
		key := storage.Key(bodyPrefix, second.ID)
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
		w.until(first.ID, Success, 10*time.Second)
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
