package task

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

const (
	// maxAttempts at callbacks run at once; of one API key, maxOfKey, and of
	// one user, maxOfUser, but never more than half of what is left: the first
	// who come with receivers that hang do not take it all.
	maxAttempts = 64
	maxOfKey    = 4
	maxOfUser   = 16
)

// never is when nothing is due.
const never int64 = math.MaxInt64

// lanes say whose callback is sent next. A lane is the callbacks of one API key
// that are not delivered yet. They are in the store; here is only when the first
// of them is due, so that nothing is in memory for a callback.
//
// A slot goes to the user with the fewest attempts under way, and of his lanes
// to the one with the fewest; among equals, to whoever got none for the longest
// time. So neither a receiver that hangs, nor how many callbacks wait for it,
// nor how many keys a user has, keeps those of others waiting.
type callbackQueues struct {
	mu    sync.Mutex
	all   map[string]*callbackQueue // by API key
	users map[string]*userQueues    // by user
	open  int                       // attempts under way
	turn  uint64                    // slots that were ever given
}

type callbackQueue struct {
	key  string
	user *userQueues
	next int64  // when its first callback is due, or sooner, Unix milliseconds
	open int    // attempts under way
	turn uint64 // when it got a slot last
}

// userQueues is what one user has of the slots.
type userQueues struct {
	id     string
	queues int
	open   int
	turn   uint64
}

// grant are slots for a lane.
type grant struct {
	*callbackQueue
	slots int
}

func newCallbackQueues() *callbackQueues {
	return &callbackQueues{all: make(map[string]*callbackQueue), users: make(map[string]*userQueues)}
}

// due notes that a callback of a key is due at a time.
func (l *callbackQueues) due(user, key string, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[key]
	if one == nil {
		u := l.users[user]
		if u == nil {
			u = &userQueues{id: user}
			l.users[user] = u
		}
		u.queues++
		one = &callbackQueue{key: key, user: u, next: never}
		l.all[key] = one
	}
	one.next = min(one.next, at)
}

// grant gives the free slots to the lanes that have something due, and returns
// when the next of the others has. Whoever gets slots says by settle when the
// lane is due again.
func (l *callbackQueues) grant(now int64) (given []grant, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = never
	var due []*callbackQueue
	for _, one := range l.all {
		if one.next <= now {
			due = append(due, one)
		} else {
			next = min(next, one.next)
		}
	}
	slots := make(map[*callbackQueue]int)
	for {
		due = slices.DeleteFunc(due, l.full)
		if len(due) == 0 {
			break
		}
		one := slices.MinFunc(due, (*callbackQueue).compare)
		slots[one]++
		l.count(one, +1)
		l.turn++
		one.turn, one.user.turn = l.turn, l.turn
	}
	for one, n := range slots {
		one.next = never
		given = append(given, grant{one, n})
	}
	return given, next
}

// full tells whether a lane gets no slot at this moment.
func (l *callbackQueues) full(one *callbackQueue) bool {
	free := maxAttempts - l.open
	return free <= 0 || one.open >= maxOfKey || one.user.open >= min(maxOfUser, max(1, free/2))
}

// compare sorts the lane first that gets the next slot.
func (one *callbackQueue) compare(other *callbackQueue) int {
	return cmp.Or(
		cmp.Compare(one.user.open, other.user.open),
		cmp.Compare(one.user.turn, other.user.turn),
		cmp.Compare(one.open, other.open),
		cmp.Compare(one.turn, other.turn),
	)
}

// settle says of a lane when its first callback is due, and gives slots back.
func (l *callbackQueues) returnSlots(one *callbackQueue, next int64, slots int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.next = min(one.next, next)
	l.count(one, -slots)
	if one.next != never || one.open > 0 {
		return
	}
	delete(l.all, one.key)
	if one.user.queues--; one.user.queues == 0 {
		delete(l.users, one.user.id)
	}
}

func (l *callbackQueues) count(one *callbackQueue, by int) {
	one.open += by
	one.user.open += by
	l.open += by
}
