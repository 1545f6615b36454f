package task

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

const (
	// mostAttempts at callbacks run at once; of one API key, mostOfKey, and of
	// one user, mostOfUser, but never more than half of what is left: the first
	// who come with receivers that hang do not take it all.
	mostAttempts = 64
	mostOfKey    = 4
	mostOfUser   = 16
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
type lanes struct {
	mu    sync.Mutex
	all   map[string]*lane  // by API key
	users map[string]*share // by user
	open  int               // attempts under way
	turn  uint64            // slots that were ever given
}

type lane struct {
	key  string
	user *share
	next int64  // when its first callback is due, or sooner, Unix milliseconds
	open int    // attempts under way
	turn uint64 // when it got a slot last
}

// share is what one user has of the slots.
type share struct {
	id    string
	lanes int
	open  int
	turn  uint64
}

// grant are slots for a lane.
type grant struct {
	*lane
	slots int
}

func newLanes() *lanes {
	return &lanes{all: make(map[string]*lane), users: make(map[string]*share)}
}

// due notes that a callback of a key is due at a time.
func (l *lanes) due(user, key string, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[key]
	if one == nil {
		u := l.users[user]
		if u == nil {
			u = &share{id: user}
			l.users[user] = u
		}
		u.lanes++
		one = &lane{key: key, user: u, next: never}
		l.all[key] = one
	}
	one.next = min(one.next, at)
}

// grant gives the free slots to the lanes that have something due, and returns
// when the next of the others has. Whoever gets slots says by settle when the
// lane is due again.
func (l *lanes) grant(now int64) (given []grant, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = never
	var due []*lane
	for _, one := range l.all {
		if one.next <= now {
			due = append(due, one)
		} else {
			next = min(next, one.next)
		}
	}
	slots := make(map[*lane]int)
	for {
		due = slices.DeleteFunc(due, l.full)
		if len(due) == 0 {
			break
		}
		one := slices.MinFunc(due, (*lane).compare)
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
func (l *lanes) full(one *lane) bool {
	free := mostAttempts - l.open
	return free <= 0 || one.open >= mostOfKey || one.user.open >= min(mostOfUser, max(1, free/2))
}

// compare sorts the lane first that gets the next slot.
func (one *lane) compare(other *lane) int {
	return cmp.Or(
		cmp.Compare(one.user.open, other.user.open),
		cmp.Compare(one.user.turn, other.user.turn),
		cmp.Compare(one.open, other.open),
		cmp.Compare(one.turn, other.turn),
	)
}

// settle says of a lane when its first callback is due, and gives slots back.
func (l *lanes) settle(one *lane, next int64, slots int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.next = min(one.next, next)
	l.count(one, -slots)
	if one.next != never || one.open > 0 {
		return
	}
	delete(l.all, one.key)
	if one.user.lanes--; one.user.lanes == 0 {
		delete(l.users, one.user.id)
	}
}

func (l *lanes) count(one *lane, by int) {
	one.open += by
	one.user.open += by
	l.open += by
}
