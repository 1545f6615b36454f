// Package limit limits rates and concurrency. A [RateLimiter] counts, for each
// subject, requests and units per time window, and open requests. The caller
// decides what a unit is: a token, a byte. A [Semaphore] limits concurrency,
// and a [KeyedSemaphore] does so for each key and in total. All counts are in
// the memory of one process. A rate is a token bucket that refills evenly: it has no
// fixed windows, and is full after a restart. What must hold for a calendar day, or over
// restarts, is a budget of internal/ledger. The package imports no other package of this
// module.
package limit

import "time"

// Window allows a number of units in each period of time. All of them may be
// used at once. A Window without a positive limit, such as the zero Window,
// allows any number.
type Window struct {
	Limit  int64
	Period time.Duration
}

// PerSecond returns a window of n per second, or the zero Window if n is not
// positive.
func PerSecond(n int64) Window { return per(n, time.Second) }

// PerMinute returns a window of n per minute, or the zero Window if n is not
// positive.
func PerMinute(n int64) Window { return per(n, time.Minute) }

func per(n int64, period time.Duration) Window {
	if n <= 0 {
		return Window{}
	}
	return Window{n, period}
}

// Rates are the limits of one subject.
type Rates struct {
	Requests   Window // requests that begin
	Units      Window // units that requests use
	Concurrent int64  // concurrent requests that are open; zero, or less, is no limit
}

func (r *Rates) none() bool {
	return r.Requests.Limit <= 0 && r.Units.Limit <= 0 && r.Concurrent <= 0
}

// bounded returns r with numbers in the supported range.
func (r Rates) bounded() Rates {
	r.Requests.Limit = min(max(r.Requests.Limit, 0), most)
	r.Units.Limit = min(max(r.Units.Limit, 0), most)
	r.Concurrent = min(max(r.Concurrent, 0), most)
	return r
}

// Subject is a user or key with limits.
type Subject struct {
	ID    string // unique among all subjects of a limiter
	Rates Rates  // current limits; a change applies to the next request
}

// Request is a request for admission. Both of its subjects must allow it. A
// subject without limits always does.
type Request struct {
	Key, User  Subject
	Units      int64 // expected units
	Concurrent bool  // whether it counts as concurrent while it is open
}

// Kind is one of the limits of [Rates].
type Kind uint8

// The kinds.
const (
	Requests Kind = iota
	Units
	Concurrent
)

// WindowStatus is what remains of one limit.
type WindowStatus struct {
	Limit     int64         // zero: there is none
	Remaining int64         // units that may be used at once
	Reset     time.Duration // time until the window is full; zero, which is unknown, for concurrent requests
}

// RateLimitStatus is what remains of each limit: for each, the values of the
// subject with less remaining.
type RateLimitStatus struct {
	Requests, Units, Concurrent WindowStatus
}

// tighter returns the smaller value of each limit.
func (s RateLimitStatus) tighter(other RateLimitStatus) RateLimitStatus {
	less := func(a, b WindowStatus) WindowStatus {
		if a.Limit == 0 || b.Limit > 0 && b.Remaining < a.Remaining {
			return b
		}
		return a
	}
	return RateLimitStatus{less(s.Requests, other.Requests), less(s.Units, other.Units), less(s.Concurrent, other.Concurrent)}
}

// Refusal is the reason why a request may not begin. The request has used
// nothing.
type Refusal struct {
	What       Kind
	OfUser     bool          // the limit is the user's, not the key's
	Limit      int64         // the limit
	RetryAfter time.Duration // time until the request may begin, unless another one begins earlier
	Status     RateLimitStatus
}

// Grant is the admission of a request. Its holder calls End. The zero Grant is
// that of a request without limits.
type Grant struct {
	// Status is what remained when the request began.
	Status RateLimitStatus

	accounts   [2]*account
	shards     [2]int   // of the accounts
	taken      [2]int64 // units
	units      int64    // expected
	concurrent bool
}

// End reports how many units the request has used. It returns unused units and
// takes additional ones. Only the first call has an effect.
func (g *Grant) End(now time.Time, units int64) {
	for i, a := range g.accounts {
		if a == nil {
			continue
		}
		g.accounts[i] = nil
		a.shard.Lock()
		a.end(now.UnixNano(), g.taken[i], units, g.concurrent)
		a.shard.Unlock()
	}
}
