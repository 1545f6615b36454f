package limit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// This file counts the subjects that are of all nodes of a shared store. The store has the buckets and
// the concurrent requests of each subject; see level.go. A request takes what it needs out of them in
// one update, for both of its subjects or for neither. While a bucket is full enough, a node takes an
// allotment with it for its next requests, and loses what it has not used within a second. So all nodes
// together never pass a limit, and refuse at most one allotment of each node too early.

const (
	// allotmentTime is for how long an allotment lasts at the full rate.
	allotmentTime = 250 * time.Millisecond

	// allotmentLife is how long an allotment may be used. A node that cannot reach the store admits
	// nothing after that.
	allotmentLife = time.Second

	// storePatience is how long a request waits for the store.
	storePatience = 2 * time.Second

	// refusalLife is how long a refusal at most is repeated without asking the store.
	refusalLife = 250 * time.Millisecond

	// owedRetry is the time between two attempts to write what the store must still learn.
	owedRetry = time.Second
)

// nodes counts the limits of one node of a shared store.
type nodes struct {
	store *storage.Store

	mu     sync.Mutex
	shares map[string]*share
}

// share is what this node has of the limits of a subject. The mutex of nodes protects it.
type share struct {
	id              string
	rates           Rates // of the last request
	requests, units credit
	open            int64         // requests that are being admitted or running
	owed            amount        // that the store must still learn
	posted          bool          // the store is being told
	asking          chan struct{} // closed when the request that asks the store has its answer; nil: none asks
	waiting         amount        // that the requests need which wait for it

	refusal      *Refusal // the last one
	refusedUnits int64    // that it was asked for
	refusedAt    time.Time
	refusedUntil time.Time
}

// amount is a number of each [Kind].
type amount struct{ requests, units, concurrent int64 }

func (a amount) plus(b amount) amount {
	return amount{a.requests + b.requests, a.units + b.units, a.concurrent + b.concurrent}
}

func (a amount) negative() amount { return amount{-a.requests, -a.units, -a.concurrent} }

// credit is the rest of an allotment.
type credit struct {
	n    int64
	lost time.Time
}

// take takes at most n that is not lost yet.
func (c *credit) take(n int64, now time.Time) int64 {
	if !now.Before(c.lost) {
		c.n = 0
	}
	n = min(max(n, 0), c.n)
	c.n -= n
	return n
}

// holding is what a request has taken from a subject; nil share: the subject has no limits.
type holding struct {
	nodes *nodes
	share *share
	rates Rates
	taken amount
}

// want is what a request needs from a subject.
type want struct {
	*holding
	need     amount   // in total, without what the request has taken before
	local    amount   // the part of need that this node had
	drawn    amount   // the part that comes from the store
	required int64    // units that must be there; the rest may become a debt
	waiting  amount   // that other requests of the subject on this node need
	surplus  amount   // for other requests
	others   *Refusal // of those of them for which it is not enough
	ofUser   bool
}

// admit is [RateLimiter.Admit] for subjects of all nodes.
func (n *nodes) admit(r Request) (Grant, *Refusal) {
	g := Grant{units: r.Units, shares: new([2]holding)}
	for i, s := range [2]Subject{r.Key, r.User} {
		if !s.Rates.none() {
			g.shares[i] = holding{nodes: n, share: n.begin(s), rates: s.Rates.bounded()}
		}
	}
	if refused := n.take(&g, 1, max(r.Units, 1), r.Concurrent); refused != nil {
		g.abandonShares()
		return Grant{}, refused
	}
	g.concurrent = r.Concurrent
	return g, nil
}

// extend is [RateLimiter.Extend] for subjects of all nodes.
func (n *nodes) extend(g *Grant, units int64, concurrent bool) *Refusal {
	if units == g.units && !concurrent {
		return nil
	}
	if refused := n.take(g, 0, max(units, 1), concurrent && !g.concurrent); refused != nil {
		g.abandonShares()
		g.Status = refused.Status
		return refused
	}
	g.units, g.concurrent = units, g.concurrent || concurrent
	return nil
}

// endShares is [Grant.End] for subjects of all nodes.
func (g *Grant) endShares(units int64) {
	for i := range g.shares {
		if h := &g.shares[i]; h.share != nil {
			change := amount{concurrent: -h.taken.concurrent}
			if h.rates.Units.Limit > 0 {
				change.units = max(units, 0) - h.taken.units
			}
			h.nodes.end(h.share, change)
		}
	}
	g.shares = nil
}

// abandonShares ends a request as if it had not begun.
func (g *Grant) abandonShares() {
	for i := range g.shares {
		if h := &g.shares[i]; h.share != nil {
			h.nodes.end(h.share, h.taken.negative())
		}
	}
	g.shares = nil
}

// take takes requests, and units up to a total, for both subjects of a grant or for neither.
func (n *nodes) take(g *Grant, requests, units int64, concurrent bool) *Refusal {
	now := time.Now()
	wants := make([]*want, 0, len(g.shares))
	n.mu.Lock()
	for i := range g.shares {
		h := &g.shares[i]
		if h.share == nil {
			continue
		}
		w := &want{holding: h, need: h.needs(requests, units, concurrent), ofUser: i == 1}
		if refused := w.remembered(now, h.share.refusedUntil.Sub(now)); refused != nil {
			n.giveBack(wants)
			n.mu.Unlock()
			return refused
		}
		w.takeLocal(now)
		wants = append(wants, w)
	}
	n.mu.Unlock()

	refused := n.draw(wants, units, now)
	n.mu.Lock()
	defer n.mu.Unlock()
	if refused != nil {
		n.giveBack(wants)
		return refused
	}
	for _, w := range wants {
		w.taken = w.taken.plus(w.need)
	}
	return nil
}

// needs returns what a request needs beyond what it has taken. It returns units that it does not need
// when it ends.
func (h *holding) needs(requests, units int64, concurrent bool) (need amount) {
	if h.rates.Requests.Limit > 0 {
		need.requests = requests
	}
	if h.rates.Units.Limit > 0 {
		need.units = max(0, units-h.taken.units)
	}
	if concurrent && h.rates.Concurrent > 0 {
		need.concurrent = 1
	}
	return need
}

// takeLocal takes what this node has and the want still misses. The mutex of nodes is held.
func (w *want) takeLocal(now time.Time) {
	w.local.requests += w.share.requests.take(w.need.requests-w.local.requests, now)
	w.local.units += w.share.units.take(w.need.units-w.local.units, now)
}

// giveBack gives back what this node had. The mutex of nodes is held.
func (n *nodes) giveBack(wants []*want) {
	for _, w := range wants {
		w.share.requests.n += w.local.requests
		w.share.units.n += w.local.units
	}
}

// draw takes from the store what the node does not have. For each subject one request asks it at a
// time, also for those that wait meanwhile.
func (n *nodes) draw(wants []*want, units int64, arrived time.Time) *Refusal {
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	short := make([]*want, 0, len(wants))
	for _, w := range wants {
		if w.missing() == (amount{}) {
			continue
		}
		asks, refused := n.await(ctx, w, arrived)
		if refused != nil {
			return refused
		}
		if asks {
			defer n.answered(w.share)
		}
		if w.drawn = w.missing(); w.drawn != (amount{}) {
			w.required = min(units, w.rates.Units.Limit) - w.taken.units - w.local.units
			short = append(short, w)
		}
	}
	if len(short) == 0 {
		return nil
	}
	began := time.Now()
	refused, of, err := n.update(ctx, short)
	if err != nil {
		return &Refusal{Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if refused != nil {
		refused.OfUser = of.ofUser
		of.share.refuse(refused, of.drawn.units, began, began.Add(min(refused.RetryAfter, refusalLife)))
		return refused
	}
	for _, w := range short {
		w.share.requests = w.share.requests.more(w.surplus.requests, began)
		w.share.units = w.share.units.more(w.surplus.units, began)
		if w.others != nil {
			w.share.refuse(w.others, 1, began, began) // later requests ask again
		}
	}
	return nil
}

// refuse remembers a refusal. The mutex of nodes is held.
func (s *share) refuse(r *Refusal, units int64, at, until time.Time) {
	s.refusal, s.refusedUnits, s.refusedAt, s.refusedUntil = r, units, at, until
}

// await waits while another request asks the store for the subject, and takes what that one has left or
// returns its refusal. Otherwise the caller must ask, and call answered then. Nobody waits for a user
// while asking for the user's key, except for another key's request.
func (n *nodes) await(ctx context.Context, w *want, arrived time.Time) (asks bool, refused *Refusal) {
	s, counted := w.share, w.missing()
	n.mu.Lock()
	defer n.mu.Unlock()
	s.waiting = s.waiting.plus(counted)
	defer func() { s.waiting = s.waiting.plus(counted.negative()) }()
	for {
		now := time.Now()
		w.takeLocal(now)
		if missing := w.missing(); missing.requests == 0 && missing.units == 0 {
			return false, nil // concurrent requests are not lent, so nobody need wait for others
		}
		if refused := w.remembered(now, s.refusedAt.Sub(arrived)+1); refused != nil {
			return false, refused
		}
		asking := s.asking
		if asking == nil {
			s.asking, w.waiting = make(chan struct{}), s.waiting.plus(counted.negative())
			return true, nil
		}
		n.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		n.mu.Lock()
		if err := ctx.Err(); err != nil {
			return false, &Refusal{Err: err}
		}
	}
}

// answered ends the wait of others for the answer to a request.
func (n *nodes) answered(s *share) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(s.asking)
	s.asking = nil
}

// more returns the credit with what was lent at the time began.
func (c credit) more(n int64, began time.Time) credit {
	if n <= 0 {
		return c
	}
	return credit{c.take(c.n, began) + n, began.Add(allotmentLife)}
}

// missing returns what the node does not have.
func (w *want) missing() amount { return w.need.plus(w.local.negative()) }

// remembered returns the last refusal of the subject again, if it holds for this want and holds is
// positive. The mutex of nodes is held.
func (w *want) remembered(now time.Time, holds time.Duration) *Refusal {
	s := w.share
	if s.refusal == nil || holds <= 0 {
		return nil
	}
	concerns := [...]bool{Requests: w.need.requests > 0, Units: w.need.units >= s.refusedUnits, Concurrent: w.need.concurrent > 0}
	if !concerns[s.refusal.What] {
		return nil
	}
	again := *s.refusal
	again.OfUser = w.ofUser
	again.RetryAfter = max(again.RetryAfter-now.Sub(s.refusedAt), time.Millisecond)
	return &again
}

// begin returns the share of a subject, with one more open request.
func (n *nodes) begin(s Subject) *share {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.shares[s.ID]
	if found == nil {
		n.sweep()
		found = &share{id: s.ID}
		n.shares[s.ID] = found
	}
	found.rates = s.Rates.bounded()
	found.open++
	return found
}

// end ends a request of a subject, whose usage in the store changes.
func (n *nodes) end(s *share, change amount) {
	n.mu.Lock()
	s.open--
	if change.concurrent < 0 {
		s.refusal = nil
	}
	s.owed = s.owed.plus(change)
	must := s.owed != (amount{}) && !s.posted
	s.posted = s.posted || must
	n.mu.Unlock()
	if must {
		n.post(s)
	}
}

// post tells the store what it must still learn of a share.
func (n *nodes) post(s *share) {
	n.mu.Lock()
	owed, rates := s.owed, s.rates
	s.owed = amount{}
	n.mu.Unlock()
	done := func(err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		again := time.Duration(0)
		switch {
		case errors.Is(err, storage.ErrStopped), errors.Is(err, storage.ErrClosed):
			s.owed, s.posted = amount{}, false // the epoch ends, and what it has open with it
			return
		case err != nil:
			s.owed, again = s.owed.plus(owed), owedRetry
		}
		if s.posted = s.owed != (amount{}); s.posted {
			time.AfterFunc(again, func() { n.post(s) })
		}
	}
	if err := n.store.Post(context.Background(), n.change(s.id, rates, owed), done); err != nil {
		done(err)
	}
}

// sweep removes the idle ones among sweepCount shares. The mutex of nodes is held.
func (n *nodes) sweep() {
	now, checked := time.Now(), 0
	for id, s := range n.shares {
		if checked++; checked > sweepCount {
			return
		}
		if s.open == 0 && !s.posted && !now.Before(s.requests.lost) && !now.Before(s.units.lost) && !now.Before(s.refusedUntil) {
			delete(n.shares, id)
		}
	}
}
