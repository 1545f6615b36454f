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

// crowded runs fn in a fixture in which bob has money too and all tasks wait. The
// receivers of the silent keys do not answer; those of annKey2 and bobKey do.
func crowded(t *testing.T, silent []string, fn func(f *fixture)) {
	t.Helper()
	withFixture(t, func(f *fixture) {
		f.credit(bob, 1000)
		if err := f.Drain(context.Background(), "root", "works"); err != nil {
			t.Fatal(err)
		}
		f.listen()
		f.hooks.mu.Lock()
		mute := make(map[string]bool)
		for _, key := range append(silent, annKey2, bobKey) {
			url := "https://" + key + ".example.com/"
			f.hooks.address[key] = callback.Address{URL: url, Secrets: [][]byte{[]byte("x")}}
			mute[url] = slices.Contains(silent, key)
		}
		f.hooks.answer = func(n int) int {
			if mute[f.hooks.got[n-1].url] {
				return -1
			}
			return 200
		}
		f.hooks.mu.Unlock()
		fn(f)
	})
}

// over creates n finished tasks of a key, and returns the last.
func (f *fixture) over(key string, n int) (last string) {
	f.t.Helper()
	f.sleep(time.Millisecond) // they are due after the previous ones
	user := ann
	if key == bobKey {
		user = bob
	}
	for range n {
		last = f.mustSubmit(with(func(s *Submission) { s.Key, s.Payer = key, ledger.Payer{User: user} })).ID
		if _, err := f.Cancel(context.Background(), record.OfKey(key), last); err != nil {
			f.t.Fatal(err)
		}
	}
	return last
}

// waitDelivered checks that the callback of a task is delivered within a time.
func (f *fixture) waitDelivered(task string, within time.Duration) {
	f.t.Helper()
	f.sleep(within)
	var v *record.Event
	err := f.store.View(context.Background(), func(r storage.Reader) (err error) {
		v, err = record.Events.Get(r, task)
		return err
	})
	if err != nil || v == nil || v.State != record.Delivered {
		f.t.Errorf("after %v: %+v, %v", within, v, err)
	}
}

func TestManyCallbacksOfOneKeyDoNotDelayOthers(t *testing.T) {
	crowded(t, []string{annKey}, func(f *fixture) {
		f.over(annKey, 2000)
		for _, key := range []string{annKey2, bobKey} {
			f.waitDelivered(f.over(key, 1), time.Second)
		}
		f.hooks.mu.Lock()
		if f.hooks.peak > perKey+1 {
			t.Errorf("%d attempts at once", f.hooks.peak)
		}
		f.hooks.mu.Unlock()
	})
}

func TestCallbacksOfAnEarlierProcessAreSentFairly(t *testing.T) {
	crowded(t, []string{annKey}, func(f *fixture) {
		f.sender.Halt()
		synctest.Wait()
		f.over(annKey, 1500)
		left := []string{f.over(annKey2, 1), f.over(bobKey, 1)}
		f.stop()
		f.start()
		for _, task := range left {
			f.waitDelivered(task, time.Second)
		}
	})
}

func TestManyKeysOfOneUserDoNotDelayOthers(t *testing.T) {
	var silent []string
	for i := range 16 {
		silent = append(silent, fmt.Sprintf("key_ann_%02d", i))
	}
	crowded(t, silent, func(f *fixture) {
		for _, key := range silent {
			f.over(key, 20)
		}
		f.sleep(time.Second)
		f.hooks.mu.Lock()
		if f.hooks.open != perUser {
			t.Errorf("%d attempts of one user at once", f.hooks.open)
		}
		f.hooks.mu.Unlock()
		f.waitDelivered(f.over(bobKey, 1), 100*time.Millisecond)
		// The other key of the user waits for one attempt, not for all of them.
		f.waitDelivered(f.over(annKey2, 1), oneAttempt+time.Second)
	})
}

func TestIndexKeysWithoutACallbackAreRemoved(t *testing.T) {
	crowded(t, nil, func(f *fixture) {
		err := f.store.Update(context.Background(), func(t storage.Txn) error {
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
		f.waitDelivered(f.over(bobKey, 1), time.Second)
		f.sleep(2 * record.Idle) // the key of ann is removed by a later read of all queues
	})
}
