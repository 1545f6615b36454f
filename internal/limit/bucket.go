package limit

import (
	"math"
	"math/bits"
	"time"
)

// bucket is a token bucket: it holds how many of something may be had at once, and fills evenly
// by the limit of a [Window] in each period, up to that limit. It counts in integers and keeps
// fractions, so that no rounding adds up. The zero bucket is full.
type bucket struct {
	level int64 // below zero if more was used than was foreseen
	part  int64 // the fraction above level: part divided by the nanoseconds of the period
	at    int64 // when b held that, in Unix nanoseconds; zero: b was never used
}

// most bounds rates and debts, so that nothing below can overflow.
const most = 1 << 53

// disorder is how far apart calls may come in that read the clock in another
// order. The later one then adds nothing: it would count the same time again.
const disorder = time.Second

// fill brings b to the time now. If the limit has become smaller, b loses what is more than that
// at once; if it has become greater, b fills faster from now on.
func (b *bucket) fill(now int64, w Window) {
	elapsed := now - b.at
	full := b.at == 0 || b.level >= w.Limit
	if elapsed > 0 || elapsed < -int64(disorder) {
		b.at = now // a clock that was set back counts on from there
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

// until returns how long it takes until b holds n, which is at most the limit.
func (b *bucket) until(n int64, w Window) time.Duration {
	if b.level >= n {
		return 0
	}
	high, low := bits.Mul64(uint64(n-b.level), uint64(w.Period))
	low, borrow := bits.Sub64(low, uint64(b.part), 0)
	high -= borrow
	low, carry := bits.Add64(low, uint64(w.Limit-1), 0) // round up: the moment before is too early
	high += carry
	if high >= uint64(w.Limit) {
		return math.MaxInt64
	}
	wait, _ := bits.Div64(high, low, uint64(w.Limit))
	return time.Duration(min(wait, math.MaxInt64))
}

// take takes n, whether or not b holds so many. A negative n gives back; the
// next fill takes what is more than a full bucket.
func (b *bucket) take(n int64) {
	b.level = max(b.level-min(n, most), -most)
}
