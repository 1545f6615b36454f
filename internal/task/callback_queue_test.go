package task

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

const bob = "user_bob"

// crowded is a world in which bob has money, too, and all tasks wait. Nobody
// answers at the addresses of some of ann's keys; somebody does at those of
// annKey2 and of bob.
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
			w.hooks.address[key] = Address{URL: url, Secrets: [][]byte{[]byte("x")}}
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

// over makes tasks of a key that are over, and returns the last.
func (w *world) over(key string, n int) (last string) {
	w.t.Helper()
	w.sleep(time.Millisecond) // they are due after those before
	user := ann
	if key == bobKey {
		user = bob
	}
	for range n {
		last = w.must(with(func(s *Submission) { s.Key, s.Payer = key, ledger.Payer{User: user} })).ID
		if _, err := w.Cancel(context.Background(), OfKey(key), last); err != nil {
			w.t.Fatal(err)
		}
	}
	return last
}

// told checks that the callback of a task is taken within a time.
func (w *world) told(task string, within time.Duration) {
	w.t.Helper()
	w.sleep(within)
	var v *eventRecord
	err := w.view(context.Background(), func(r storage.Reader) (err error) {
		v, err = readEvent(r, task)
		return err
	})
	if err != nil || v == nil || v.State != Delivered {
		w.t.Errorf("after %v: %+v, %v", within, v, err)
	}
}

func TestThousandsOfCallbacksOfOneKeyDelayNoOther(t *testing.T) {
	crowded(t, []string{annKey}, func(w *world) {
		w.over(annKey, 2000)
		for _, key := range []string{annKey2, bobKey} {
			w.told(w.over(key, 1), time.Second)
		}
		w.hooks.mu.Lock()
		if w.hooks.peak > maxOfKey+1 {
			t.Errorf("%d attempts at once", w.hooks.peak)
		}
		w.hooks.mu.Unlock()
	})
}

func TestCallbacksThatAProcessLeftAreSentInTurn(t *testing.T) {
	crowded(t, []string{annKey}, func(w *world) {
		w.sender.halt()
		synctest.Wait()
		w.over(annKey, 1500)
		left := []string{w.over(annKey2, 1), w.over(bobKey, 1)}
		w.stop()
		w.start()
		for _, task := range left {
			w.told(task, time.Second)
		}
	})
}

func TestManyKeysOfOneUserDelayNoOther(t *testing.T) {
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
		if w.hooks.open != maxOfUser {
			t.Errorf("%d attempts of one user at once", w.hooks.open)
		}
		w.hooks.mu.Unlock()
		w.told(w.over(bobKey, 1), 100*time.Millisecond)
		// The user's other key waits for its turn, and not for all of theirs.
		w.told(w.over(annKey2, 1), attemptTimeout+time.Second)
	})
}

// keeps is how many slots the queues of a user have.
func (l *callbackQueues) keeps(user string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.users[user]; u != nil {
		return u.open
	}
	return 0
}

func TestSlotsAreGivenInTurn(t *testing.T) {
	t.Parallel()
	l := newCallbackQueues()
	for u := range maxAttempts {
		for k := range 10 {
			l.due(fmt.Sprint("u", u), fmt.Sprint("u", u, "k", k), 5)
		}
	}
	if given, next := l.grant(4); len(given) != 0 || next != 5 {
		t.Fatalf("before its time: %v, %d", given, next)
	}
	given, next := l.grant(5)
	if l.open != maxAttempts || next != never {
		t.Fatalf("%d slots are given, the next at %d", l.open, next)
	}
	for u := range maxAttempts {
		if n := l.keeps(fmt.Sprint("u", u)); n != 1 {
			t.Errorf("user %d has %d", u, n)
		}
	}
	for _, g := range given { // all have more to send
		l.returnSlots(g.callbackQueue, 5, 0)
	}
	l.due("new", "new", 6)
	if more, _ := l.grant(6); len(more) != 0 {
		t.Fatalf("there was no slot, and %v got one", more)
	}
	l.returnSlots(given[0].callbackQueue, never, 1)
	if more, _ := l.grant(6); len(more) != 1 || more[0].key != "new" || more[0].slots != 1 {
		t.Errorf("the free slot goes to %v", more)
	}
}

func TestManyKeysAreNoManyTurns(t *testing.T) {
	t.Parallel()
	l := newCallbackQueues()
	for u := range maxAttempts - 1 { // one slot is left
		l.due(fmt.Sprint("u", u), fmt.Sprint("u", u), 1)
	}
	l.grant(1)
	for i, want := range []string{"one", "many", "one", "many"} {
		for k := range 10 {
			if want == "many" || i > 1 {
				l.due("many", fmt.Sprint("many", k), 1)
			}
		}
		if want == "one" || i > 1 {
			l.due("one", "one", 1)
		}
		given, _ := l.grant(1)
		if len(given) != 1 || given[0].user.id != want {
			t.Fatalf("turn %d goes to %+v, want %s", i+1, given, want)
		}
		l.returnSlots(given[0].callbackQueue, 1, 1)
	}
}

func TestAFewUsersLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	l := newCallbackQueues()
	for u := range 5 {
		for k := range 16 {
			l.due(fmt.Sprint("u", u), fmt.Sprint("u", u, "k", k), 1)
		}
		l.grant(1)
	}
	if l.keeps("u0") != maxOfUser || l.open > maxAttempts-4 {
		t.Errorf("five users have %d of %d slots, the first %d", l.open, maxAttempts, l.keeps("u0"))
	}
}

func TestWhatComesDuringALookIsNotForgotten(t *testing.T) {
	t.Parallel()
	l := newCallbackQueues()
	l.due("u", "k", 1)
	given, _ := l.grant(1)
	l.due("u", "k", 2) // after the store was asked, which knows nothing of it
	l.returnSlots(given[0].callbackQueue, never, given[0].slots)
	if given, _ = l.grant(2); len(given) != 1 {
		t.Fatal("a callback is forgotten")
	}
	l.returnSlots(given[0].callbackQueue, never, given[0].slots)
	if len(l.all)+len(l.users)+l.open != 0 {
		t.Errorf("what has nothing to send is kept: %+v", l)
	}
}

func TestKeysOfTheOutboxNameTheirQueue(t *testing.T) {
	t.Parallel()
	id := newID()
	for _, at := range []int64{1, 0x2f2f2f2f2f2f2f2f, never} {
		if user, key, is := callbackQueueOf(storage.Key(eventDuePrefix, ann, annKey, at, id)); user != ann || key != annKey || !is {
			t.Errorf("%d: %q, %q, %t", at, user, key, is)
		}
	}
	for _, key := range [][]byte{
		nil, []byte("eventdue"), []byte("eventdue/"), storage.Key(eventDuePrefix, int64(1), id), storage.Key(eventDuePrefix, ann, int64(1), id),
		storage.Key(eventDuePrefix, "", annKey, int64(1), id),
	} {
		if user, key, is := callbackQueueOf(key); is {
			t.Errorf("%q is of %q, %q", key, user, key)
		}
	}
}

func TestKeysThatLeadToNoCallbackAreRemoved(t *testing.T) {
	crowded(t, nil, func(w *world) {
		err := w.store.Update(context.Background(), func(t storage.Txn) error {
			for _, key := range [][]byte{
				storage.Key(eventDuePrefix, bob, bobKey, int64(1), newID()),
				storage.Key(eventDuePrefix, ann, annKey2, int64(1), newID()),
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
		w.told(w.over(bobKey, 1), time.Second)
		w.sleep(2 * idle) // of ann's nobody was told
	})
}
