package limit

import (
	"hash/maphash"
	"sync"
	"time"
)

// Table counts what every subject uses. It remembers those that have a call open
// or have not been idle long enough to have all their limits back; the others
// are forgotten as new ones come. It is safe for concurrent use.
type Table struct {
	seed   maphash.Seed
	shards [64]shard
}

// shard is a part of the table with a lock of its own.
type shard struct {
	sync.Mutex
	accounts map[string]*account
	_        [48]byte // keeps neighbours out of one cache line
}

// NewTable returns a table in which nobody has used anything.
func NewTable() *Table {
	t := &Table{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].accounts = make(map[string]*account)
	}
	return t
}

// Admit lets a call begin, or says why it may not. Either both its subjects bear
// it or neither does.
func (t *Table) Admit(now time.Time, c Call) (Grant, *Refusal) {
	if c.Key.Rates.none() && c.User.Rates.none() {
		return Grant{}, nil
	}
	at := now.UnixNano()
	key, user := t.shardOf(c.Key.ID), t.shardOf(c.User.ID)
	t.lock(key, user)
	defer t.unlock(key, user)

	g := Grant{stream: c.Stream, tokens: c.Tokens, shards: [2]int{key, user}}
	g.accounts[0] = t.shards[key].account(at, c.Key)
	g.accounts[1] = t.shards[user].account(at, c.User)

	var refused Refusal
	for i, a := range g.accounts {
		if a == nil {
			continue
		}
		if wait, what := a.wait(c.Tokens, c.Stream); wait > refused.RetryAfter {
			refused = Refusal{What: what, OfUser: i == 1, Limit: a.rates.of(what), RetryAfter: wait}
		}
	}
	if refused.RetryAfter > 0 {
		refusal := refused // on the heap, and only here
		refusal.Standing = g.standing()
		for _, a := range g.accounts {
			if a != nil {
				a.calls--
			}
		}
		return Grant{}, &refusal
	}
	for i, a := range g.accounts {
		if a != nil {
			g.taken[i] = a.begin(c.Tokens, c.Stream)
		}
	}
	g.Standing = g.standing()
	return g, nil
}

// Extend tells what a call that was admitted is, now that all of it is known: how many
// tokens it will use in all, and whether it is a stream. If the subjects do not bear
// it, the call ends at no cost, and Extend returns the refusal.
func (t *Table) Extend(now time.Time, g *Grant, tokens int64, stream bool) *Refusal {
	if g.accounts == [2]*account{} || tokens == g.tokens && !stream {
		return nil
	}
	t.lock(g.shards[0], g.shards[1])
	defer t.unlock(g.shards[0], g.shards[1])
	var refused Refusal
	for i, a := range g.accounts {
		if a == nil {
			continue
		}
		a.fill(now.UnixNano())
		if wait, what := a.waitMore(g.taken[i], tokens, stream); wait > refused.RetryAfter {
			refused = Refusal{What: what, OfUser: i == 1, Limit: a.rates.of(what), RetryAfter: wait}
		}
	}
	for i, a := range g.accounts {
		switch {
		case a == nil:
		case refused.RetryAfter > 0:
			a.cancel(g.taken[i])
		default:
			g.taken[i] += a.extend(g.taken[i], tokens, stream)
		}
	}
	g.Standing = g.standing()
	if refused.RetryAfter > 0 {
		refusal := refused // on the heap, and only here
		refusal.Standing = g.Standing
		g.accounts = [2]*account{}
		return &refusal
	}
	g.tokens, g.stream = tokens, stream
	return nil
}

// Spend counts n units for a subject that may have a number of them in a minute, or
// returns the refusal. The table counts them as tokens.
func (t *Table) Spend(now time.Time, id string, n, perMinute int64) *Refusal {
	grant, refused := t.Admit(now, Call{User: Subject{ID: id, Rates: Rates{TokensPerMinute: perMinute}}, Tokens: n})
	if refused == nil {
		grant.End(now, n)
	}
	return refused
}

// standing returns what is left to both subjects together.
func (g *Grant) standing() (s Standing) {
	for _, a := range g.accounts {
		if a != nil {
			s = s.tighter(a.standing())
		}
	}
	return s
}

// Len returns how many subjects the table remembers.
func (t *Table) Len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		n += len(s.accounts)
		s.Unlock()
	}
	return n
}

func (t *Table) shardOf(id string) int {
	return int(maphash.String(t.seed, id) % uint64(len(t.shards)))
}

// lock locks two shards, which may be one, in the order in which everybody does.
func (t *Table) lock(a, b int) {
	t.shards[min(a, b)].Lock()
	if a != b {
		t.shards[max(a, b)].Lock()
	}
}

func (t *Table) unlock(a, b int) {
	t.shards[a].Unlock()
	if a != b {
		t.shards[b].Unlock()
	}
}

// account returns that of a subject, at the time now, with its rates, and with
// the call counted in, so that no sweep takes it from under that; nil for a
// subject without limits.
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
	a.calls++
	return a
}

// swept is how many accounts are looked at for each that is added. With more
// than one the idle ones go faster than others come, whatever their number, and
// no caller ever waits for a sweep of all.
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
