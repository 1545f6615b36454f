package limit

import "time"

// usage is the usage of one subject. The lock of its shard protects it.
type usage struct {
	shard      *shard
	rates      Rates // of the last request
	requests   bucket
	units      bucket
	concurrent int64 // open concurrent requests
	open       int64 // requests that are being admitted or running
}

// fill updates both buckets to the time now.
func (u *usage) fill(now int64) {
	if u.rates.Requests.Limit > 0 {
		u.requests.fill(now, u.rates.Requests)
	}
	if u.rates.Units.Limit > 0 {
		u.units.fill(now, u.rates.Units)
	}
}

// wait returns how long a request must wait, and for which limit. It returns zero if the request may
// begin. The request needs units in total and has already taken some of them. The buckets must have
// been filled.
func (u *usage) wait(begins bool, taken, units int64, concurrent bool) (wait time.Duration, what Kind) {
	if w := u.rates.Requests; begins && w.Limit > 0 {
		wait, what = u.requests.until(1, w), Requests
	}
	if w := u.rates.Units; w.Limit > 0 {
		if begins {
			units = max(units, 1)
		}
		// A request of more units than the limit begins with a full bucket and
		// leaves a debt. Otherwise it could never begin.
		if more := min(units, w.Limit) - taken; more > 0 {
			if d := u.units.until(more, w); d > wait {
				wait, what = d, Units
			}
		}
	}
	if concurrent && u.rates.Concurrent > 0 && u.concurrent >= u.rates.Concurrent && wait < concurrentRetry {
		wait, what = concurrentRetry, Concurrent
	}
	return wait, what
}

// concurrentRetry is the RetryAfter if too many requests are open. When one ends is unknown.
const concurrentRetry = time.Second

// take takes requests and units; negative numbers return them. It returns the number of units taken,
// which is zero without a limit.
func (u *usage) take(requests, units int64, concurrent bool) int64 {
	if concurrent {
		u.concurrent++
	}
	if u.rates.Requests.Limit > 0 {
		u.requests.take(requests)
	}
	if u.rates.Units.Limit <= 0 {
		return 0
	}
	u.units.take(units)
	return units
}

// end ends a request that has taken and used these numbers of units.
func (u *usage) end(now, taken, used int64, concurrent bool) {
	u.open--
	if concurrent {
		u.concurrent--
	}
	if u.rates.Units.Limit > 0 {
		u.fill(now)
		u.units.take(max(used, 0) - taken)
	}
}

// idle reports whether the usage equals that of a new subject, so that it can be forgotten.
func (u *usage) idle(now int64) bool {
	if u.open > 0 {
		return false
	}
	u.fill(now)
	return (u.rates.Requests.Limit == 0 || u.requests.Level >= u.rates.Requests.Limit) &&
		(u.rates.Units.Limit == 0 || u.units.Level >= u.rates.Units.Limit)
}

// status returns the remaining part of the limits.
func (u *usage) status() (s RateLimitStatus) {
	if w := u.rates.Requests; w.Limit > 0 {
		s.Requests = WindowStatus{w.Limit, max(u.requests.Level, 0), u.requests.until(w.Limit, w)}
	}
	if w := u.rates.Units; w.Limit > 0 {
		s.Units = WindowStatus{w.Limit, max(u.units.Level, 0), u.units.until(w.Limit, w)}
	}
	if limit := u.rates.Concurrent; limit > 0 {
		s.Concurrent = WindowStatus{Limit: limit, Remaining: max(limit-u.concurrent, 0)}
	}
	return s
}
