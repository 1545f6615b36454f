package limit

import (
	"time"
)

// share is the part of a subject's limits that this node has. The mutex of sharedLimiter protects it.
type share struct {
	id              string
	rates           Rates // of the last request
	requests, units credit
	open            int64         // requests that are being admitted or running
	unposted        amount        // changes that are not in the store yet
	posted          bool          // a change is being written
	asking          chan struct{} // closed when the store has answered the request that asks it; nil: none asks
	waiting         amount        // what the requests need that wait for it

	refusal      *Refusal // the last one
	refusedUnits int64    // units that the refused request needed
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
	n       int64
	expires time.Time
}

// take takes at most n of the credit. It returns 0 if the credit has expired.
func (c *credit) take(n int64, now time.Time) int64 {
	if !now.Before(c.expires) {
		c.n = 0
	}
	n = min(max(n, 0), c.n)
	c.n -= n
	return n
}

// holding is what a request has taken from a subject; nil share: the subject has no limits.
type holding struct {
	limiter *sharedLimiter
	share   *share
	rates   Rates
	taken   amount
}

// want is what a request needs from a subject.
type want struct {
	*holding
	need     amount   // in total, without what the request has taken before
	local    amount   // the part of need that this node had
	drawn    amount   // the part of need that comes from the store
	required int64    // units that the bucket must have; the rest may become a debt
	waiting  amount   // what other requests of the subject on this node need
	surplus  amount   // what the node takes for other requests
	others   *Refusal // of the other requests for which the surplus is not enough
	ofUser   bool
}

// needs returns what a request needs beyond what it has taken. Units that it does not use are given back
// when the request ends.
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

// takeLocal takes from the credit of this node what the want still needs. The mutex of sharedLimiter is held.
func (w *want) takeLocal(now time.Time) {
	w.local.requests += w.share.requests.take(w.need.requests-w.local.requests, now)
	w.local.units += w.share.units.take(w.need.units-w.local.units, now)
}

// refuse remembers a refusal. The mutex of sharedLimiter is held.
func (s *share) refuse(r *Refusal, units int64, at, until time.Time) {
	s.refusal, s.refusedUnits, s.refusedAt, s.refusedUntil = r, units, at, until
}

// more returns the credit with an allotment of n that was requested at the time began.
func (c credit) more(n int64, began time.Time) credit {
	if n <= 0 {
		return c
	}
	return credit{c.take(c.n, began) + n, began.Add(allotmentLife)}
}

// missing returns what the want needs and the node does not have.
func (w *want) missing() amount { return w.need.plus(w.local.negative()) }

// remembered returns the last refusal of the subject again, if it concerns this want and holds is
// positive. The mutex of sharedLimiter is held.
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
