package limit

import "time"

// account is what one subject has used. The lock of its shard guards it.
type account struct {
	shard      *shard
	rates      Rates // as of the last request
	requests   bucket
	units      bucket
	concurrent int64 // open
	open       int64 // requests to be decided, or begun and not ended
}

// fill brings both buckets to the time now.
func (a *account) fill(now int64) {
	if a.rates.Requests.Limit > 0 {
		a.requests.fill(now, a.rates.Requests)
	}
	if a.rates.Units.Limit > 0 {
		a.units.fill(now, a.rates.Units)
	}
}

// wait returns how long a request has to wait, and which limit has it wait longest; zero if it
// need not wait. The request begins, or has begun and taken some units, and wants units in all. The
// buckets have been filled.
func (a *account) wait(begins bool, taken, units int64, concurrent bool) (wait time.Duration, what Kind) {
	if w := a.rates.Requests; begins && w.Limit > 0 {
		wait, what = a.requests.until(1, w), Requests
	}
	if w := a.rates.Units; w.Limit > 0 {
		if begins {
			units = max(units, 1)
		}
		// A request of more units than the limit begins with a full bucket and leaves a debt. Else it
		// could never begin.
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

// concurrentRetry is how long a caller is asked to wait for an open request to end, since that time
// is unknown.
const concurrentRetry = time.Second

// take takes requests and units, or gives them back if they are negative. It returns the units that
// were taken, none without a limit.
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

// end settles a request for which units were taken and which used others.
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

// status returns what is left of the limits of a.
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
