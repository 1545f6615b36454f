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
	level int64 // negative if more was used than expected
	part  int64 // the fraction above level: part divided by the nanoseconds of the period
	at    int64 // time of level in Unix nanoseconds; zero: never used
}

// maxCount is the highest rate and debt, so that nothing can overflow.
const maxCount = 1 << 53

// clockTolerance is how much earlier the time of a call may be than that of a previous concurrent
// call. Such a call adds nothing, because that would count time twice.
const clockTolerance = time.Second

// fill updates b to the time now. If the limit has decreased, b loses the
// excess at once; if it has increased, b fills faster from now on.
func (b *bucket) fill(now int64, w Window) {
	elapsed := now - b.at
	full := b.at == 0 || b.level >= w.Limit
	if elapsed > 0 || elapsed < -int64(clockTolerance) { // the latter: the clock was set back
		b.at = now
	}
	if !full && elapsed > 0 {
		high, low := bits.Mul64(uint64(elapsed), uint64(w.Limit))
		low, carry := bits.Add64(low, uint64(b.part), 0)
		high += carry
		if full = high >= uint64(w.Period); !full {
			whole, part := bits.Div64(high, low, uint64(w.Period))
			if full = whole >= uint64(w.Limit-b.level); !full {
				b.level, b.part = b.level+int64(whole), int64(part)
			}
		}
	}
	if full {
		b.level, b.part = w.Limit, 0
	}
}

// until returns the time until b contains n, which must be at most the limit.
func (b *bucket) until(n int64, w Window) time.Duration {
	if b.level >= n {
		return 0
	}
	high, low := bits.Mul64(uint64(n-b.level), uint64(w.Period))
	low, borrow := bits.Sub64(low, uint64(b.part), 0)
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
	b.level = max(b.level-min(n, maxCount), -maxCount)
}
