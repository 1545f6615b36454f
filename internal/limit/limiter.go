package limit

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// RateLimiter counts the usage of every subject. It remembers the subjects that have open requests or
// have used a part of a limit. It forgets other subjects when new ones are added. Its methods may be
// called concurrently.
type RateLimiter struct {
	seed   maphash.Seed
	shards [64]shard
	shared *sharedLimiter // of a shared store; nil: there is one process
}

// shard is a part of the limiter with its own lock.
type shard struct {
	sync.Mutex
	usages map[string]*usage
	_      [48]byte // prevents false sharing
}

// NewRateLimiter returns a limiter without usage.
func NewRateLimiter() *RateLimiter {
	l := &RateLimiter{seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].usages = make(map[string]*usage)
	}
	return l
}

// Open returns a limiter for a process that has store open. If the store is shared, the limiter counts
// there the subjects that are of all nodes.
func Open(store *storage.Store) *RateLimiter {
	l := NewRateLimiter()
	if store.Shared() {
		l.shared = &sharedLimiter{store: store, shares: make(map[string]*share)}
	}
	return l
}

// Admit begins a request, or returns a refusal. The request counts for both
// subjects or for neither.
func (l *RateLimiter) Admit(now time.Time, r Request) (Grant, *Refusal) {
	if r.Key.Rates.none() && r.User.Rates.none() {
		return Grant{}, nil
	}
	if l.shared != nil && (r.Key.OfAllNodes || r.User.OfAllNodes) {
		return l.shared.admit(r)
	}
	at := now.UnixNano()
	key, user := l.shardOf(r.Key.ID), l.shardOf(r.User.ID)
	l.lock(key, user)
	defer l.unlock(key, user)

	g := Grant{concurrent: r.Concurrent, units: r.Units, shards: [2]int{key, user}}
	g.usages[0] = l.shards[key].usage(at, r.Key)
	g.usages[1] = l.shards[user].usage(at, r.User)

	refused := g.refusal(true, r.Units, r.Concurrent)
	for i, u := range g.usages {
		switch {
		case u == nil:
		case refused != nil:
			u.open--
		default:
			g.taken[i] = u.take(1, max(r.Units, 0), r.Concurrent)
		}
	}
	if refused != nil {
		return Grant{}, refused
	}
	g.Status = g.status()
	return g, nil
}

// Extend updates an admitted request, for which it is now known how many units it will use in total
// and whether it counts as concurrent. If its subjects do not allow this, the request ends as if it
// had not begun, and Extend returns the refusal.
func (l *RateLimiter) Extend(now time.Time, g *Grant, units int64, concurrent bool) *Refusal {
	if g.shares != nil {
		return l.shared.extend(g, units, concurrent)
	}
	if g.usages == [2]*usage{} || units == g.units && !concurrent {
		return nil
	}
	l.lock(g.shards[0], g.shards[1])
	defer l.unlock(g.shards[0], g.shards[1])
	for _, u := range g.usages {
		if u != nil {
			u.fill(now.UnixNano())
		}
	}
	refused := g.refusal(false, units, concurrent)
	for i, u := range g.usages {
		switch {
		case u == nil:
		case refused != nil:
			u.open--
			u.take(-1, -g.taken[i], false)
		default:
			g.taken[i] += u.take(0, max(units, 0)-g.taken[i], concurrent)
		}
	}
	g.Status = g.status()
	if refused != nil {
		refused.Status = g.Status
		g.usages = [2]*usage{}
		return refused
	}
	g.units, g.concurrent = units, concurrent
	return nil
}

// Take takes n units from the window w of a subject of this node, or returns a refusal.
func (l *RateLimiter) Take(now time.Time, id string, n int64, w Window) *Refusal {
	return l.take(now, Subject{ID: id, Rates: Rates{Units: w}}, n)
}

// TakeOfAllNodes is Take for a subject of all nodes of a shared store.
func (l *RateLimiter) TakeOfAllNodes(now time.Time, id string, n int64, w Window) *Refusal {
	return l.take(now, Subject{ID: id, Rates: Rates{Units: w}, OfAllNodes: true}, n)
}

func (l *RateLimiter) take(now time.Time, s Subject, n int64) *Refusal {
	grant, refused := l.Admit(now, Request{User: s, Units: n})
	if refused == nil {
		grant.End(now, n)
	}
	return refused
}

// refusal returns why the subjects of g do not allow a request, for the limit
// with the longest wait, or nil.
func (g *Grant) refusal(begins bool, units int64, concurrent bool) *Refusal {
	var longest Refusal
	for i, u := range g.usages {
		if u == nil {
			continue
		}
		if wait, what := u.wait(begins, g.taken[i], units, concurrent); wait > longest.RetryAfter {
			limit := [...]int64{Requests: u.rates.Requests.Limit, Units: u.rates.Units.Limit, Concurrent: u.rates.Concurrent}[what]
			longest = Refusal{What: what, OfUser: i == 1, Limit: limit, RetryAfter: wait}
		}
	}
	if longest.RetryAfter == 0 {
		return nil
	}
	refused := longest // allocates only if the request is refused
	refused.Status = g.status()
	return &refused
}

// status returns the status of the subject with less remaining, for each limit.
func (g *Grant) status() (s RateLimitStatus) {
	for _, u := range g.usages {
		if u != nil {
			s = s.tighter(u.status())
		}
	}
	return s
}

// Len returns the number of subjects that the limiter remembers.
func (l *RateLimiter) Len() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.Lock()
		n += len(s.usages)
		s.Unlock()
	}
	return n
}

func (l *RateLimiter) shardOf(id string) int {
	return int(maphash.String(l.seed, id) % uint64(len(l.shards)))
}

// lock locks two shards, which may be the same, in a fixed order.
func (l *RateLimiter) lock(a, b int) {
	l.shards[min(a, b)].Lock()
	if a != b {
		l.shards[max(a, b)].Lock()
	}
}

func (l *RateLimiter) unlock(a, b int) {
	l.shards[a].Unlock()
	if a != b {
		l.shards[b].Unlock()
	}
}

// usage returns the usage of a subject, updated to the time now and to its rates. It counts an open
// request, so that no sweep removes the usage. It returns nil for a subject without limits.
func (s *shard) usage(now int64, subject Subject) *usage {
	if subject.Rates.none() {
		return nil
	}
	u := s.usages[subject.ID]
	if u == nil {
		s.sweep(now)
		u = &usage{shard: s}
		s.usages[subject.ID] = u
	}
	u.rates = subject.Rates.bounded()
	u.fill(now)
	u.open++
	return u
}

// sweepCount is the number of subjects that are checked for each one that is added. It is more than
// one, so idle subjects are removed faster than others are added. No caller waits for a complete
// sweep.
const sweepCount = 4

// sweep removes the idle ones among sweepCount subjects, which the order of the map selects at random.
func (s *shard) sweep(now int64) {
	n := 0
	for id, u := range s.usages {
		if n++; n > sweepCount {
			return
		}
		if u.idle(now) {
			delete(s.usages, id)
		}
	}
}
