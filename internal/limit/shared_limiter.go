package limit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// This file counts the subjects that are of all nodes of a shared store. The store has the buckets and
// the concurrent requests of each subject; see level.go. A request takes what it needs from them in one
// update, for both of its subjects or for neither. If a bucket has enough left, the same update takes an
// allotment for the next requests of the node, which expires after a second. So all nodes together never
// exceed a limit. They may refuse requests too early by at most one allotment of each node.

const (
	// allotmentTime is for how long an allotment lasts at the full rate.
	allotmentTime = 250 * time.Millisecond

	// allotmentLife is how long an allotment may be used. After that, a node that cannot reach the
	// store admits nothing.
	allotmentLife = time.Second

	// storePatience is how long a request waits for the store.
	storePatience = 2 * time.Second

	// refusalLife is the longest time for which a refusal is repeated without asking the store.
	refusalLife = 250 * time.Millisecond

	// postRetry is the time between two attempts to write unposted changes.
	postRetry = time.Second
)

// sharedLimiter is the part of a [RateLimiter] that counts the subjects of all nodes of a shared store.
type sharedLimiter struct {
	store *storage.Store

	mu     sync.Mutex
	shares map[string]*share
}

// admit is [RateLimiter.Admit] for subjects of all nodes.
func (l *sharedLimiter) admit(r Request) (Grant, *Refusal) {
	g := Grant{units: r.Units, shares: new([2]holding)}
	for i, s := range [2]Subject{r.Key, r.User} {
		if !s.Rates.none() {
			g.shares[i] = holding{limiter: l, share: l.begin(s), rates: s.Rates.bounded()}
		}
	}
	if refused := l.take(&g, 1, max(r.Units, 1), r.Concurrent); refused != nil {
		g.abandonShares()
		return Grant{}, refused
	}
	g.concurrent = r.Concurrent
	return g, nil
}

// extend is [RateLimiter.Extend] for subjects of all nodes.
func (l *sharedLimiter) extend(g *Grant, units int64, concurrent bool) *Refusal {
	if units == g.units && !concurrent {
		return nil
	}
	if refused := l.take(g, 0, max(units, 1), concurrent && !g.concurrent); refused != nil {
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
			h.limiter.end(h.share, change)
		}
	}
	g.shares = nil
}

// abandonShares ends a request as if it had not begun.
func (g *Grant) abandonShares() {
	for i := range g.shares {
		if h := &g.shares[i]; h.share != nil {
			h.limiter.end(h.share, h.taken.negative())
		}
	}
	g.shares = nil
}

// take takes requests, and units up to a total, for both subjects of a grant or for neither.
func (l *sharedLimiter) take(g *Grant, requests, units int64, concurrent bool) *Refusal {
	now := time.Now()
	wants := make([]*want, 0, len(g.shares))
	l.mu.Lock()
	for i := range g.shares {
		h := &g.shares[i]
		if h.share == nil {
			continue
		}
		w := &want{holding: h, need: h.needs(requests, units, concurrent), ofUser: i == 1}
		if refused := w.remembered(now, h.share.refusedUntil.Sub(now)); refused != nil {
			l.giveBack(wants)
			l.mu.Unlock()
			return refused
		}
		w.takeLocal(now)
		wants = append(wants, w)
	}
	l.mu.Unlock()

	refused := l.draw(wants, units, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused != nil {
		l.giveBack(wants)
		return refused
	}
	for _, w := range wants {
		w.taken = w.taken.plus(w.need)
	}
	return nil
}

// giveBack returns what the wants have taken from the credit of this node. The mutex of sharedLimiter is held.
func (l *sharedLimiter) giveBack(wants []*want) {
	for _, w := range wants {
		w.share.requests.n += w.local.requests
		w.share.units.n += w.local.units
	}
}

// draw takes from the store what the node does not have. For each subject, one request at a time asks
// the store, also for the requests that wait meanwhile.
func (l *sharedLimiter) draw(wants []*want, units int64, arrived time.Time) *Refusal {
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	short := make([]*want, 0, len(wants))
	for _, w := range wants {
		if w.missing() == (amount{}) {
			continue
		}
		asks, refused := l.await(ctx, w, arrived)
		if refused != nil {
			return refused
		}
		if asks {
			defer l.answered(w.share)
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
	refused, of, err := l.update(ctx, short)
	if err != nil {
		return &Refusal{Err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
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

// await waits while another request asks the store for the subject. Then it takes what that request has
// left, or returns its refusal. If asks is true, the caller must ask the store and then call answered.
// Each request asks for its key before its user, so no two requests wait for each other.
func (l *sharedLimiter) await(ctx context.Context, w *want, arrived time.Time) (asks bool, refused *Refusal) {
	s, counted := w.share, w.missing()
	l.mu.Lock()
	defer l.mu.Unlock()
	s.waiting = s.waiting.plus(counted)
	defer func() { s.waiting = s.waiting.plus(counted.negative()) }()
	for {
		now := time.Now()
		w.takeLocal(now)
		if missing := w.missing(); missing.requests == 0 && missing.units == 0 {
			return false, nil // nodes take no concurrent requests in advance, so there is nothing to wait for
		}
		if refused := w.remembered(now, s.refusedAt.Sub(arrived)+1); refused != nil {
			return false, refused
		}
		asking := s.asking
		if asking == nil {
			s.asking, w.waiting = make(chan struct{}), s.waiting.plus(counted.negative())
			return true, nil
		}
		l.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		l.mu.Lock()
		if err := ctx.Err(); err != nil {
			return false, &Refusal{Err: err}
		}
	}
}

// answered ends the wait of other requests for the store's answer.
func (l *sharedLimiter) answered(s *share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(s.asking)
	s.asking = nil
}

// begin returns the share of a subject, with one more open request.
func (l *sharedLimiter) begin(s Subject) *share {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.shares[s.ID]
	if found == nil {
		l.sweep()
		found = &share{id: s.ID}
		l.shares[s.ID] = found
	}
	found.rates = s.Rates.bounded()
	found.open++
	return found
}

// end ends a request of a subject, and posts the change of the subject's usage in the store.
func (l *sharedLimiter) end(s *share, change amount) {
	l.mu.Lock()
	s.open--
	if change.concurrent < 0 {
		s.refusal = nil
	}
	s.unposted = s.unposted.plus(change)
	must := s.unposted != (amount{}) && !s.posted
	s.posted = s.posted || must
	l.mu.Unlock()
	if must {
		l.post(s)
	}
}

// post writes the unposted change of a share into the store. It does not block.
func (l *sharedLimiter) post(s *share) {
	l.mu.Lock()
	change, rates := s.unposted, s.rates
	s.unposted = amount{}
	l.mu.Unlock()
	done := func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		again := time.Duration(0)
		switch {
		case errors.Is(err, storage.ErrStopped), errors.Is(err, storage.ErrClosed):
			s.unposted, s.posted = amount{}, false // the epoch ends, and another node frees its requests
			return
		case err != nil:
			s.unposted, again = s.unposted.plus(change), postRetry
		}
		if s.posted = s.unposted != (amount{}); s.posted {
			time.AfterFunc(again, func() { l.post(s) })
		}
	}
	if err := l.store.Post(context.Background(), l.change(s.id, rates, change), done); err != nil {
		done(err)
	}
}

// sweep looks at up to sweepCount shares, and removes those that are idle. The mutex of sharedLimiter is held.
func (l *sharedLimiter) sweep() {
	now, checked := time.Now(), 0
	for id, s := range l.shares {
		if checked++; checked > sweepCount {
			return
		}
		if s.open == 0 && !s.posted && !now.Before(s.requests.expires) && !now.Before(s.units.expires) && !now.Before(s.refusedUntil) {
			delete(l.shares, id)
		}
	}
}
