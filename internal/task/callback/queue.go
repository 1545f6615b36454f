package callback

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

const (
	// maxAttempts at callbacks run at once; of one API key maxOfKey, and of one user maxOfUser, but
	// never more than half of the free slots: the first receivers that hang do not use up all.
	maxAttempts = 64
	maxOfKey    = 4
	maxOfUser   = 16
)

// never is when nothing is due.
const never int64 = math.MaxInt64

// queues decide whose callback is sent next. A callback queue holds the callbacks of one
// API key that are not delivered yet. They are in the store; memory has only when the first of them
// is due. A slot goes to the user with the fewest attempts under way, and among the queues of this
// user to the one with the fewest; among equals, to the one that has got none for the longest time.
// So a receiver that hangs, many waiting callbacks and many keys of one user do not delay those of
// others.
type queues struct {
	mu    sync.Mutex
	all   map[string]*queue      // by API key
	users map[string]*userQueues // by user
	open  int                    // attempts under way
	turn  uint64                 // slots that were ever given
}

type queue struct {
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

// grant is a number of slots for a callback queue.
type grant struct {
	*queue
	slots int
}

func newQueues() *queues {
	return &queues{all: make(map[string]*queue), users: make(map[string]*userQueues)}
}

// due notes when a callback of a key is due.
func (l *queues) due(user, key string, at int64) {
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
		one = &queue{key: key, user: u, next: never}
		l.all[key] = one
	}
	one.next = min(one.next, at)
}

// grant gives the free slots to the queues that have something due, and returns when the next of
// the others has. The caller gives them back by returnSlots.
func (l *queues) grant(now int64) (given []grant, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = never
	var due []*queue
	for _, one := range l.all {
		if one.next <= now {
			due = append(due, one)
		} else {
			next = min(next, one.next)
		}
	}
	slots := make(map[*queue]int)
	for {
		due = slices.DeleteFunc(due, l.full)
		if len(due) == 0 {
			break
		}
		one := slices.MinFunc(due, (*queue).compare)
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

// full reports whether a queue gets no slot at this moment.
func (l *queues) full(one *queue) bool {
	free := maxAttempts - l.open
	return free <= 0 || one.open >= maxOfKey || one.user.open >= min(maxOfUser, max(1, free/2))
}

// compare sorts the queue first that gets the next slot.
func (one *queue) compare(other *queue) int {
	return cmp.Or(
		cmp.Compare(one.user.open, other.user.open),
		cmp.Compare(one.user.turn, other.user.turn),
		cmp.Compare(one.open, other.open),
		cmp.Compare(one.turn, other.turn),
	)
}

// returnSlots gives slots of a queue back, and notes when its first callback is due.
func (l *queues) returnSlots(one *queue, next int64, slots int) {
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

func (l *queues) count(one *queue, by int) {
	one.open += by
	one.user.open += by
	l.open += by
}
