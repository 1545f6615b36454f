// Package limit bounds how often something is done and how much at once. A [RateLimiter] counts,
// for each subject, requests and units in windows of time, and requests that are open at once.
// What a unit is, its caller decides: a token, a byte. A [Semaphore] bounds what runs at once, and
// a [KeyedSemaphore] does so for each key and in all. Everything is counted in the memory of one
// process and forgotten when that ends. The package imports nothing of this module.
package limit

import "time"

// Window allows a number of something in each period of time. As many may be had at once. The zero
// Window, and any whose limit is not above zero, allows any number.
type Window struct {
	Limit  int64
	Period time.Duration
}

// PerSecond returns the window of n in each second; the zero Window where n is not above zero.
func PerSecond(n int64) Window { return per(n, time.Second) }

// PerMinute returns the window of n in each minute; the zero Window where n is not above zero.
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

// bounded returns r with numbers that can be counted with.
func (r Rates) bounded() Rates {
	r.Requests.Limit = min(max(r.Requests.Limit, 0), most)
	r.Units.Limit = min(max(r.Units.Limit, 0), most)
	r.Concurrent = min(max(r.Concurrent, 0), most)
	return r
}

// Subject is who is limited.
type Subject struct {
	ID    string // unique among all subjects of a limiter
	Rates Rates  // as they are now; a change acts on the next request
}

// Request is what wants to begin. Both of its subjects must have room for it; one without limits
// always has.
type Request struct {
	Key, User  Subject
	Units      int64 // units that it will use, as far as can be foreseen
	Concurrent bool  // whether it counts as concurrent while it is open
}

// Kind names a limit of [Rates].
type Kind uint8

// The kinds.
const (
	Requests Kind = iota
	Units
	Concurrent
)

// WindowStatus is what is left of one limit.
type WindowStatus struct {
	Limit     int64         // zero: there is none
	Remaining int64         // what may be had at once
	Reset     time.Duration // until all of it may be had again; zero for concurrent requests: unknown
}

// RateLimitStatus is what is left of each limit: for each, of the subject that has less of it left.
type RateLimitStatus struct {
	Requests, Units, Concurrent WindowStatus
}

// tighter returns, of each limit, what is less.
func (s RateLimitStatus) tighter(other RateLimitStatus) RateLimitStatus {
	less := func(a, b WindowStatus) WindowStatus {
		if a.Limit == 0 || b.Limit > 0 && b.Remaining < a.Remaining {
			return b
		}
		return a
	}
	return RateLimitStatus{less(s.Requests, other.Requests), less(s.Units, other.Units), less(s.Concurrent, other.Concurrent)}
}

// Refusal is why a request may not begin. The request has used nothing.
type Refusal struct {
	What       Kind
	OfUser     bool          // the limit is the user's, not the key's
	Limit      int64         // how many are allowed
	RetryAfter time.Duration // after which the request may begin, if no other does before
	Status     RateLimitStatus
}

// Grant is the permission of a request to run. Its holder ends it. The zero Grant is that of a
// request without limits.
type Grant struct {
	// Status is what was left when the request had begun.
	Status RateLimitStatus

	accounts   [2]*account
	shards     [2]int   // of the accounts
	taken      [2]int64 // units
	units      int64    // that were foreseen
	concurrent bool
}

// End reports how many units the request has used. Units that were foreseen beyond that are given
// back, and units that were not foreseen are taken. It acts once.
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
