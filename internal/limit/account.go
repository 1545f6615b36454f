package limit

import "time"

// account is the usage of one subject. The lock of its shard protects it.
type account struct {
	shard      *shard
	rates      Rates // as of the last request
	requests   bucket
	units      bucket
	concurrent int64 // open
	open       int64 // requests that are being admitted or running
}

// fill updates both buckets to the time now.
func (a *account) fill(now int64) {
	if a.rates.Requests.Limit > 0 {
		a.requests.fill(now, a.rates.Requests)
	}
	if a.rates.Units.Limit > 0 {
		a.units.fill(now, a.rates.Units)
	}
}

// wait returns how long a request must wait, and for which limit; zero if it
// may begin. units is what it needs in total, of which it may have taken some.
// The buckets must have been filled.
func (a *account) wait(begins bool, taken, units int64, concurrent bool) (wait time.Duration, what Kind) {
	if w := a.rates.Requests; begins && w.Limit > 0 {
		wait, what = a.requests.until(1, w), Requests
	}
	if w := a.rates.Units; w.Limit > 0 {
		if begins {
			units = max(units, 1)
		}
		// A request of more units than the limit begins with a full bucket and
		// leaves a debt. Otherwise it could never begin.
		if more := min(units, w.Limit) - taken; more > 0 {
			if d := a.units.until(more, w); d > wait {
				wait, what = d, Units
			}
		}
	}
	if concurrent && a.rates.Concurrent > 0 && a.concurrent >= a.rates.Concurrent && wait < concurrentRetry {
		wait, what = concurrentRetry, Concurrent
	}
	return wait, what
}

// concurrentRetry is the Retry-After if too many requests are open, because it
// is unknown when one ends.
const concurrentRetry = time.Second

// take takes requests and units, or returns them if they are negative. It
// returns the number of units taken, which is zero without a limit.
func (a *account) take(requests, units int64, concurrent bool) int64 {
	if concurrent {
		a.concurrent++
	}
	if a.rates.Requests.Limit > 0 {
		a.requests.take(requests)
	}
	if a.rates.Units.Limit <= 0 {
		return 0
	}
	a.units.take(units)
	return units
}

// end ends a request for which taken units were taken and used units were used.
func (a *account) end(now, taken, used int64, concurrent bool) {
	a.open--
	if concurrent {
		a.concurrent--
	}
	if a.rates.Units.Limit > 0 {
		a.fill(now)
		a.units.take(max(used, 0) - taken)
	}
}

// idle reports whether a new account would be equal to a.
func (a *account) idle(now int64) bool {
	if a.open > 0 {
		return false
	}
	a.fill(now)
	return (a.rates.Requests.Limit == 0 || a.requests.level >= a.rates.Requests.Limit) &&
		(a.rates.Units.Limit == 0 || a.units.level >= a.rates.Units.Limit)
}

// status returns what remains of the limits.
func (a *account) status() (s RateLimitStatus) {
	if w := a.rates.Requests; w.Limit > 0 {
		s.Requests = WindowStatus{w.Limit, max(a.requests.level, 0), a.requests.until(w.Limit, w)}
	}
	if w := a.rates.Units; w.Limit > 0 {
		s.Units = WindowStatus{w.Limit, max(a.units.level, 0), a.units.until(w.Limit, w)}
	}
	if limit := a.rates.Concurrent; limit > 0 {
		s.Concurrent = WindowStatus{Limit: limit, Remaining: max(limit-a.concurrent, 0)}
	}
	return s
}
