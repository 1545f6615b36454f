package task

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

const bob = "user_bob"

// The values in docs/reference/tasks.md#callbacks.
const (
	perKey     = 4 // attempts at once
	perUser    = 16
	oneAttempt = 10 * time.Second
	redelivery = 7 * 24 * time.Hour
)

// crowded runs fn in a world in which bob has money too and all tasks wait. The
// receivers of the silent keys do not answer; those of annKey2 and bobKey do.
func crowded(t *testing.T, silent []string, fn func(w *world)) {
	t.Helper()
	in(t, func(w *world) {
		w.credit(bob, 1000)
		if err := w.Drain(context.Background(), "root", "works"); err != nil {
			t.Fatal(err)
		}
		w.listen()
		w.hooks.mu.Lock()
		mute := make(map[string]bool)
		for _, key := range append(silent, annKey2, bobKey) {
			url := "https://" + key + ".example.com/"
			w.hooks.address[key] = callback.Address{URL: url, Secrets: [][]byte{[]byte("x")}}
			mute[url] = slices.Contains(silent, key)
		}
		w.hooks.answer = func(n int) int {
			if mute[w.hooks.got[n-1].url] {
				return -1
			}
			return 200
		}
		w.hooks.mu.Unlock()
		fn(w)
	})
}

// over creates n finished tasks of a key, and returns the last.
func (w *world) over(key string, n int) (last string) {
	w.t.Helper()
	w.sleep(time.Millisecond) // they are due after the previous ones
	user := ann
	if key == bobKey {
		user = bob
	}
	for range n {
		last = w.must(with(func(s *Submission) { s.Key, s.Payer = key, ledger.Payer{User: user} })).ID
		if _, err := w.Cancel(context.Background(), record.OfKey(key), last); err != nil {
			w.t.Fatal(err)
		}
	}
	return last
}

// waitDelivered checks that the callback of a task is delivered within a time.
func (w *world) waitDelivered(task string, within time.Duration) {
	w.t.Helper()
	w.sleep(within)
	var v *record.Event
	err := w.store.View(context.Background(), func(r storage.Reader) (err error) {
		v, err = record.Events.Get(r, task)
		return err
	})
	if err != nil || v == nil || v.State != record.Delivered {
		w.t.Errorf("after %v: %+v, %v", within, v, err)
	}
}

func TestManyCallbacksOfOneKeyDoNotDelayOthers(t *testing.T) {
	crowded(t, []string{annKey}, func(w *world) {
		w.over(annKey, 2000)
		for _, key := range []string{annKey2, bobKey} {
			w.waitDelivered(w.over(key, 1), time.Second)
		}
		w.hooks.mu.Lock()
		if w.hooks.peak > perKey+1 {
			t.Errorf("%d attempts at once", w.hooks.peak)
		}
		w.hooks.mu.Unlock()
	})
}

func TestCallbacksOfAnEarlierProcessAreSentFairly(t *testing.T) {
	crowded(t, []string{annKey}, func(w *world) {
		w.sender.Halt()
		synctest.Wait()
		w.over(annKey, 1500)
		left := []string{w.over(annKey2, 1), w.over(bobKey, 1)}
		w.stop()
		w.start()
		for _, task := range left {
			w.waitDelivered(task, time.Second)
		}
	})
}

func TestManyKeysOfOneUserDoNotDelayOthers(t *testing.T) {
	var silent []string
	for i := range 16 {
		silent = append(silent, fmt.Sprintf("key_ann_%02d", i))
	}
	crowded(t, silent, func(w *world) {
		for _, key := range silent {
			w.over(key, 20)
		}
		w.sleep(time.Second)
		w.hooks.mu.Lock()
		if w.hooks.open != perUser {
			t.Errorf("%d attempts of one user at once", w.hooks.open)
		}
		w.hooks.mu.Unlock()
		w.waitDelivered(w.over(bobKey, 1), 100*time.Millisecond)
		// The other key of the user waits for one attempt, not for all of them.
		w.waitDelivered(w.over(annKey2, 1), oneAttempt+time.Second)
	})
}

func TestIndexKeysWithoutACallbackAreRemoved(t *testing.T) {
	crowded(t, nil, func(w *world) {
		err := w.store.Update(context.Background(), func(t storage.Txn) error {
			for _, key := range [][]byte{
				storage.Key(record.EventDuePrefix, bob, bobKey, int64(1), record.NewID()),
				storage.Key(record.EventDuePrefix, ann, annKey2, int64(1), record.NewID()),
			} {
				if err := t.Set(key, nil, time.Time{}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.waitDelivered(w.over(bobKey, 1), time.Second)
		w.sleep(2 * record.Idle) // the key of ann is removed by a later read of all queues
	})
}
