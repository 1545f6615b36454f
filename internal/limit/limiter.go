package limit

import (
	"hash/maphash"
	"sync"
	"time"
)

// RateLimiter counts the usage of every subject. It remembers subjects with
// open requests and those whose limits are not full. It forgets others as new
// ones are added. Its methods may be called concurrently.
type RateLimiter struct {
	seed   maphash.Seed
	shards [64]shard
}

// shard is a part of the limiter with a lock of its own.
type shard struct {
	sync.Mutex
	accounts map[string]*account
	_        [48]byte // prevents false sharing
}

// NewRateLimiter returns a limiter without usage.
func NewRateLimiter() *RateLimiter {
	l := &RateLimiter{seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].accounts = make(map[string]*account)
	}
	return l
}

// Admit begins a request, or returns a refusal. The request counts for both
// subjects or for neither.
func (l *RateLimiter) Admit(now time.Time, r Request) (Grant, *Refusal) {
	if r.Key.Rates.none() && r.User.Rates.none() {
		return Grant{}, nil
	}
	at := now.UnixNano()
	key, user := l.shardOf(r.Key.ID), l.shardOf(r.User.ID)
	l.lock(key, user)
	defer l.unlock(key, user)

	g := Grant{concurrent: r.Concurrent, units: r.Units, shards: [2]int{key, user}}
	g.accounts[0] = l.shards[key].account(at, r.Key)
	g.accounts[1] = l.shards[user].account(at, r.User)

	refused := g.refusal(true, r.Units, r.Concurrent)
	for i, a := range g.accounts {
		switch {
		case a == nil:
		case refused != nil:
			a.open--
		default:
			g.taken[i] = a.take(1, max(r.Units, 0), r.Concurrent)
		}
	}
	if refused != nil {
		return Grant{}, refused
	}
	g.Status = g.status()
	return g, nil
}

// Extend updates an admitted request with what is known now: how many units it
// will use in total, and whether it counts as concurrent. If its subjects do
// not allow it, the request ends as if it had not begun, and Extend returns the
// refusal.
func (l *RateLimiter) Extend(now time.Time, g *Grant, units int64, concurrent bool) *Refusal {
	if g.accounts == [2]*account{} || units == g.units && !concurrent {
		return nil
	}
	l.lock(g.shards[0], g.shards[1])
	defer l.unlock(g.shards[0], g.shards[1])
	for _, a := range g.accounts {
		if a != nil {
			a.fill(now.UnixNano())
		}
	}
	refused := g.refusal(false, units, concurrent)
	for i, a := range g.accounts {
		switch {
		case a == nil:
		case refused != nil:
			a.open--
			a.take(-1, -g.taken[i], false)
		default:
			g.taken[i] += a.take(0, max(units, 0)-g.taken[i], concurrent)
		}
	}
	g.Status = g.status()
	if refused != nil {
		refused.Status = g.Status
		g.accounts = [2]*account{}
		return refused
	}
	g.units, g.concurrent = units, concurrent
	return nil
}

// Take takes n units of a window from a subject, or returns the refusal.
func (l *RateLimiter) Take(now time.Time, id string, n int64, w Window) *Refusal {
	grant, refused := l.Admit(now, Request{User: Subject{ID: id, Rates: Rates{Units: w}}, Units: n})
	if refused == nil {
		grant.End(now, n)
	}
	return refused
}

// refusal returns why the subjects of g do not allow a request, for the limit
// with the longest wait, or nil.
func (g *Grant) refusal(begins bool, units int64, concurrent bool) *Refusal {
	var longest Refusal
	for i, a := range g.accounts {
		if a == nil {
			continue
		}
		if wait, what := a.wait(begins, g.taken[i], units, concurrent); wait > longest.RetryAfter {
			limit := [...]int64{Requests: a.rates.Requests.Limit, Units: a.rates.Units.Limit, Concurrent: a.rates.Concurrent}[what]
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

// status returns what remains for both subjects together.
func (g *Grant) status() (s RateLimitStatus) {
	for _, a := range g.accounts {
		if a != nil {
			s = s.tighter(a.status())
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
		n += len(s.accounts)
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

// account returns the account of a subject, updated to the time now and to its
// rates. It counts an open request, so that no sweep removes the account. It
// returns nil for a subject without limits.
func (s *shard) account(now int64, subject Subject) *account {
	if subject.Rates.none() {
		return nil
	}
	a := s.accounts[subject.ID]
	if a == nil {
		s.sweep(now)
		a = &account{shard: s}
		s.accounts[subject.ID] = a
	}
	a.rates = subject.Rates.bounded()
	a.fill(now)
	a.open++
	return a
}

// swept is the number of accounts that are checked for each one that is added.
// Because it is greater than one, idle accounts are removed faster than others
// are added, and no caller waits for a complete sweep.
const swept = 4

// sweep removes idle accounts among the first few in the random order of the
// map.
func (s *shard) sweep(now int64) {
	n := 0
	for id, a := range s.accounts {
		if n++; n > swept {
			return
		}
		if a.idle(now) {
			delete(s.accounts, id)
		}
	}
}
