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
	perKey     = 4 // concurrent attempts
	perUser    = 16
	oneAttempt = 10 * time.Second
	redelivery = 7 * 24 * time.Hour
)

// withSilentReceivers runs fn in a fixture in which all tasks wait and bob has money too.
// The receivers of the silent keys do not answer; the receivers of annKey2 and bobKey do.
func withSilentReceivers(t *testing.T, silent []string, fn func(f *fixture)) {
	t.Helper()
	withFixture(t, func(f *fixture) {
		f.credit(bob, 1000)
		if err := f.Drain(context.Background(), "root", "works"); err != nil {
			t.Fatal(err)
		}
		f.listen()
		f.hooks.mu.Lock()
		ignores := make(map[string]bool) // by URL
		for _, key := range append(silent, annKey2, bobKey) {
			url := "https://" + key + ".example.com/"
			f.hooks.address[key] = callback.Address{URL: url, Secrets: [][]byte{[]byte("x")}}
			ignores[url] = slices.Contains(silent, key)
		}
		f.hooks.answer = func(n int) int {
			if ignores[f.hooks.got[n-1].url] {
				return -1
			}
			return 200
		}
		f.hooks.mu.Unlock()
		fn(f)
	})
}

// finishTasks creates n finished tasks of a key, and returns the last.
func (f *fixture) finishTasks(key string, n int) (last string) {
	f.t.Helper()
	f.sleep(time.Millisecond) // their callbacks are due after the previous ones
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
	withSilentReceivers(t, []string{annKey}, func(f *fixture) {
		f.finishTasks(annKey, 2000)
		for _, key := range []string{annKey2, bobKey} {
			f.waitDelivered(f.finishTasks(key, 1), time.Second)
		}
		f.hooks.mu.Lock()
		if f.hooks.peak > perKey+1 {
			t.Errorf("%d concurrent attempts", f.hooks.peak)
		}
		f.hooks.mu.Unlock()
	})
}

func TestCallbacksOfAnEarlierProcessAreSentFairly(t *testing.T) {
	withSilentReceivers(t, []string{annKey}, func(f *fixture) {
		f.sender.Halt()
		synctest.Wait()
		f.finishTasks(annKey, 1500)
		left := []string{f.finishTasks(annKey2, 1), f.finishTasks(bobKey, 1)}
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
	withSilentReceivers(t, silent, func(f *fixture) {
		for _, key := range silent {
			f.finishTasks(key, 20)
		}
		f.sleep(time.Second)
		f.hooks.mu.Lock()
		if f.hooks.open != perUser {
			t.Errorf("%d concurrent attempts of one user, want %d", f.hooks.open, perUser)
		}
		f.hooks.mu.Unlock()
		f.waitDelivered(f.finishTasks(bobKey, 1), 100*time.Millisecond)
		// The other key of the user waits for one attempt, not for all of them.
		f.waitDelivered(f.finishTasks(annKey2, 1), oneAttempt+time.Second)
	})
}

func TestIndexKeysWithoutACallbackAreRemoved(t *testing.T) {
	withSilentReceivers(t, nil, func(f *fixture) {
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
		f.waitDelivered(f.finishTasks(bobKey, 1), time.Second)
		f.sleep(2 * record.Idle) // the key of ann is removed by a later read of all queues
	})
}
