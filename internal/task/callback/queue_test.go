package callback

import (
	"fmt"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// openOf returns the number of slots of the queues of a user.
func (l *queues) openOf(user string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.users[user]; u != nil {
		return u.open
	}
	return 0
}

func TestSlotsAreGrantedFairly(t *testing.T) {
	t.Parallel()
	l := newQueues()
	for u := range maxAttempts {
		for k := range 10 {
			l.due(fmt.Sprint("u", u), fmt.Sprint("u", u, "k", k), 5)
		}
	}
	if given, next := l.grant(4); len(given) != 0 || next != 5 {
		t.Fatalf("before the due time: %v, %d", given, next)
	}
	given, next := l.grant(5)
	if l.open != maxAttempts || next != never {
		t.Fatalf("%d slots are granted, the next queue is due at %d", l.open, next)
	}
	for u := range maxAttempts {
		if n := l.openOf(fmt.Sprint("u", u)); n != 1 {
			t.Errorf("user %d has %d slots, want 1", u, n)
		}
	}
	for _, g := range given { // each queue has more due callbacks
		l.returnSlots(g.queue, 5, 0)
	}
	l.due("new", "new", 6)
	if more, _ := l.grant(6); len(more) != 0 {
		t.Fatalf("no slot was free, and %v got one", more)
	}
	l.returnSlots(given[0].queue, never, 1)
	if more, _ := l.grant(6); len(more) != 1 || more[0].key != "new" || more[0].slots != 1 {
		t.Errorf("the free slot was granted to %v", more)
	}
}

func TestManyKeysOfAUserGetNoMoreSlots(t *testing.T) {
	t.Parallel()
	l := newQueues()
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
			t.Fatalf("grant %d is %+v, want user %s", i+1, given, want)
		}
		l.returnSlots(given[0].queue, 1, 1)
	}
}

func TestAFewUsersCannotUseAllSlots(t *testing.T) {
	t.Parallel()
	l := newQueues()
	for u := range 5 {
		for k := range 16 {
			l.due(fmt.Sprint("u", u), fmt.Sprint("u", u, "k", k), 1)
		}
		l.grant(1)
	}
	if l.openOf("u0") != maxOfUser || l.open > maxAttempts-4 {
		t.Errorf("five users have %d of %d slots, the first %d", l.open, maxAttempts, l.openOf("u0"))
	}
}

func TestACallbackDuringAnAttemptIsScheduled(t *testing.T) {
	t.Parallel()
	l := newQueues()
	l.due("u", "k", 1)
	given, _ := l.grant(1)
	l.due("u", "k", 2) // after the store was read
	l.returnSlots(given[0].queue, never, given[0].slots)
	if given, _ = l.grant(2); len(given) != 1 {
		t.Fatal("the callback is not scheduled")
	}
	l.returnSlots(given[0].queue, never, given[0].slots)
	if len(l.all)+len(l.users)+l.open != 0 {
		t.Errorf("a queue without callbacks remains: %+v", l)
	}
}

func TestQueueOfAnOutboxKey(t *testing.T) {
	t.Parallel()
	id := record.NewID()
	for _, at := range []int64{1, 0x2f2f2f2f2f2f2f2f, never} {
		if user, key, is := queueOf(storage.Key(record.EventDuePrefix, "user_ann", "key_ann1", at, id)); user != "user_ann" || key != "key_ann1" || !is {
			t.Errorf("%d: %q, %q, %t", at, user, key, is)
		}
	}
	for _, key := range [][]byte{
		nil, []byte("eventdue"), []byte("eventdue/"), storage.Key(record.EventDuePrefix, int64(1), id), storage.Key(record.EventDuePrefix, "user_ann", int64(1), id),
		storage.Key(record.EventDuePrefix, "", "key_ann1", int64(1), id),
	} {
		if user, key, is := queueOf(key); is {
			t.Errorf("%q is parsed as %q, %q", key, user, key)
		}
	}
}
