// Package limit limits rates and concurrency in the memory of one process, or of all nodes of a shared
// store.
//
// A [RateLimiter] counts for each subject, which is a key or a user. It counts the requests that
// begin per period, the units that requests use per period, and the open requests. The caller
// defines the unit, such as a token or a byte. A [Semaphore] counts units that are held at the same
// time; a [KeyedSemaphore] does so for each key and in total.
//
// A rate is a token bucket that refills evenly. It has no fixed windows, and is full after a restart.
// On a shared store, a [Subject] may be of all nodes. Then its buckets are in the store, and each node
// takes parts of them in advance; see shared_limiter.go and level.go. The package counts no money:
// budgets, which hold for a calendar period and over restarts, are in internal/ledger. A new limit,
// such as requests per day, is a field of [Rates] and a [Kind]; internal/identity stores it. Of this
// module the package imports only storage and storage/table.
package limit

import "time"

// Window allows Limit units in each Period. All of them may be used at once. A Window without a
// positive limit, such as the zero Window, allows any number.
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
	Concurrent int64  // concurrent requests that are open; zero or less: no limit
}

// none reports whether r has no limit.
func (r *Rates) none() bool {
	return r.Requests.Limit <= 0 && r.Units.Limit <= 0 && r.Concurrent <= 0
}

// bounded returns r with numbers in the supported range.
func (r Rates) bounded() Rates {
	r.Requests.Limit = min(max(r.Requests.Limit, 0), maxCount)
	r.Units.Limit = min(max(r.Units.Limit, 0), maxCount)
	r.Concurrent = min(max(r.Concurrent, 0), maxCount)
	return r
}

// Subject is a user or key with limits.
type Subject struct {
	ID    string // unique among all subjects of a limiter
	Rates Rates  // current limits; a change applies to the next request

	// OfAllNodes means that the limits hold for all nodes of a shared store together, and not for
	// each of them. Both subjects of a request are of all nodes, or neither is.
	OfAllNodes bool
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

// WindowStatus is the remaining part of one limit.
type WindowStatus struct {
	Limit     int64         // zero: no limit
	Remaining int64         // units that may be used at once
	Reset     time.Duration // time until the window is full; zero for concurrent requests, where it is unknown
}

// RateLimitStatus is the remaining part of each limit, for the subject with less remaining.
type RateLimitStatus struct {
	Requests, Units, Concurrent WindowStatus
}

// tighter returns, for each limit, the status with less remaining.
func (s RateLimitStatus) tighter(other RateLimitStatus) RateLimitStatus {
	less := func(a, b WindowStatus) WindowStatus {
		if a.Limit == 0 || b.Limit > 0 && b.Remaining < a.Remaining {
			return b
		}
		return a
	}
	return RateLimitStatus{less(s.Requests, other.Requests), less(s.Units, other.Units), less(s.Concurrent, other.Concurrent)}
}

// Refusal says why a request may not begin. The request has used nothing.
type Refusal struct {
	// Err is not nil if the shared store that counts the limits did not answer. Then the other members
	// are zero.
	Err error

	What       Kind
	OfUser     bool          // the limit is the user's, not the key's
	Limit      int64         // the limit
	RetryAfter time.Duration // time until the request may begin, unless another request begins earlier
	Status     RateLimitStatus
}

// Grant is the admission of a request. The caller must call End. The zero Grant is that of a request
// without limits.
type Grant struct {
	// Status is the remaining part of the limits when the request began.
	Status RateLimitStatus

	usages     [2]*usage
	shards     [2]int   // of the usages
	taken      [2]int64 // units
	units      int64    // expected
	concurrent bool

	shares *[2]holding // of the subjects, if they are of all nodes; otherwise nil
}

// End ends the request, which has used units. It returns unused units and takes additional ones. Only
// the first call has an effect.
func (g *Grant) End(now time.Time, units int64) {
	if g.shares != nil {
		g.endShares(units)
		return
	}
	for i, u := range g.usages {
		if u == nil {
			continue
		}
		g.usages[i] = nil
		u.shard.Lock()
		u.end(now.UnixNano(), g.taken[i], units, g.concurrent)
		u.shard.Unlock()
	}
}
