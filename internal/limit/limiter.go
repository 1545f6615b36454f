package limit

import (
	"hash/maphash"
	"sync"
	"time"
)

// RateLimiter counts what every subject uses. It remembers the subjects that have a request open,
// and those of which some limit is not full again. It forgets the others as new ones come. It is
// safe for concurrent use.
type RateLimiter struct {
	seed   maphash.Seed
	shards [64]shard
}

// shard is a part of the limiter with a lock of its own.
type shard struct {
	sync.Mutex
	accounts map[string]*account
	_        [48]byte // keeps neighbours out of one cache line
}

// NewRateLimiter returns a limiter of which no subject has used anything.
func NewRateLimiter() *RateLimiter {
	l := &RateLimiter{seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].accounts = make(map[string]*account)
	}
	return l
}

// Admit begins a request, or returns why it may not begin. It counts for both of its subjects or
// for neither.
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

// Extend reports what is known by now about an admitted request: how many units it will use in all,
// and whether it counts as concurrent. If its subjects have no room for it, the request ends as if
// it had not begun, and Extend returns the refusal.
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

// Take takes n units of a subject that may have those of a window, or returns the refusal.
func (l *RateLimiter) Take(now time.Time, id string, n int64, w Window) *Refusal {
	grant, refused := l.Admit(now, Request{User: Subject{ID: id, Rates: Rates{Units: w}}, Units: n})
	if refused == nil {
		grant.End(now, n)
	}
	return refused
}

// refusal returns why the subjects of g have no room for a request, by the limit that has it wait
// longest; nil if they have.
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
	refused := longest // on the heap, and only here
	refused.Status = g.status()
	return &refused
}

// status returns what is left to both subjects together.
func (g *Grant) status() (s RateLimitStatus) {
	for _, a := range g.accounts {
		if a != nil {
			s = s.tighter(a.status())
		}
	}
	return s
}

// Len returns how many subjects the limiter remembers.
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

// lock locks two shards, which may be one, always in the same order.
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

// account returns the account of a subject at the time now, with its rates, and counts a request as
// open, so that no sweep forgets the account; nil for a subject without limits.
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

// swept is how many accounts are looked at for each that is added. With more than one, idle accounts
// go faster than others come, and no caller waits for a sweep of all.
const swept = 4

// sweep forgets the idle among a few accounts, which the map's order chooses.
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
