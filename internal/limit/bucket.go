package limit

import (
	"math"
	"math/bits"
	"time"
)

// bucket is a token bucket. It is refilled evenly, by the limit of a [Window] in each period, up to
// that limit. It counts in integers and keeps the fraction, so that rounding errors do not
// accumulate. The zero bucket is full.
type bucket struct {
	Level int64 `json:"level"` // negative if more was used than expected
	Part  int64 `json:"part"`  // the fraction above Level: Part divided by the nanoseconds of the period
	At    int64 `json:"at"`    // time of Level in Unix nanoseconds; zero: never used
}

// maxCount is the highest rate and debt, so that nothing can overflow.
const maxCount = 1 << 53

// clockTolerance is how much earlier the time of a call may be than that of a previous concurrent
// call. Such a call adds nothing, because that would count time twice.
const clockTolerance = time.Second

// fill updates b to the time now. If the limit has decreased, b loses the
// excess at once; if it has increased, b fills faster from now on.
func (b *bucket) fill(now int64, w Window) {
	elapsed := now - b.At
	full := b.At == 0 || b.Level >= w.Limit
	if elapsed > 0 || elapsed < -int64(clockTolerance) { // the latter: the clock was set back
		b.At = now
	}
	if !full && elapsed > 0 {
		high, low := bits.Mul64(uint64(elapsed), uint64(w.Limit))
		low, carry := bits.Add64(low, uint64(b.Part), 0)
		high += carry
		if full = high >= uint64(w.Period); !full {
			whole, part := bits.Div64(high, low, uint64(w.Period))
			if full = whole >= uint64(w.Limit-b.Level); !full {
				b.Level, b.Part = b.Level+int64(whole), int64(part)
			}
		}
	}
	if full {
		b.Level, b.Part = w.Limit, 0
	}
}

// until returns the time until b contains n, which must be at most the limit.
func (b *bucket) until(n int64, w Window) time.Duration {
	if b.Level >= n {
		return 0
	}
	high, low := bits.Mul64(uint64(n-b.Level), uint64(w.Period))
	low, borrow := bits.Sub64(low, uint64(b.Part), 0)
	high -= borrow
	low, carry := bits.Add64(low, uint64(w.Limit-1), 0) // rounded up, so that it is not too early
	high += carry
	if high >= uint64(w.Limit) {
		return math.MaxInt64
	}
	wait, _ := bits.Div64(high, low, uint64(w.Limit))
	return time.Duration(min(wait, math.MaxInt64))
}

// take takes n, even if b contains less. A negative n returns units; the next
// fill removes what exceeds the limit.
func (b *bucket) take(n int64) {
	b.Level = max(b.Level-min(n, maxCount), -maxCount)
}
