package callback

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

const (
	// maxAttempts is how many attempts run at once, maxOfKey how many of one API key, maxOfUser how
	// many of one user. A user never gets more than half of the free slots, so that a few receivers
	// that hang do not use up all.
	maxAttempts = 64
	maxOfKey    = 4
	maxOfUser   = 16
)

// never is the due time of an empty queue.
const never int64 = math.MaxInt64

// queues schedules the attempts of callbacks. A callback queue has the undelivered callbacks of one
// API key. They are in the store; memory has only the time when the first of them is due. A slot goes
// to the user with the fewest running attempts, and among the queues of this user to the one with the
// fewest. Among equals, it goes to the queue whose last slot is the oldest. So a receiver that hangs,
// many waiting callbacks or many keys of one user do not delay the callbacks of others.
type queues struct {
	mu    sync.Mutex
	all   map[string]*queue      // by API key
	users map[string]*userQueues // by user
	open  int                    // running attempts
	turn  uint64                 // number of slots granted so far
}

type queue struct {
	key  string
	user *userQueues
	next int64  // when its first callback is due, or sooner, Unix milliseconds
	open int    // running attempts
	turn uint64 // value of queues.turn at its last slot
}

// userQueues counts the queues and slots of one user.
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

// due records when a callback of a key is due.
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

// grant assigns the free slots to the queues with due callbacks, and returns when the next of the
// other queues is due. The caller releases the slots by returnSlots.
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

// full reports whether a queue can get no slot now.
func (l *queues) full(one *queue) bool {
	free := maxAttempts - l.open
	return free <= 0 || one.open >= maxOfKey || one.user.open >= min(maxOfUser, max(1, free/2))
}

// compare orders queues by their priority for the next slot.
func (one *queue) compare(other *queue) int {
	return cmp.Or(
		cmp.Compare(one.user.open, other.user.open),
		cmp.Compare(one.user.turn, other.user.turn),
		cmp.Compare(one.open, other.open),
		cmp.Compare(one.turn, other.turn),
	)
}

// returnSlots releases slots of a queue, and records when its first callback is due.
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
