package limit

import (
	"math"
	"math/bits"
	"time"
)

// bucket holds how many of something may be had at once, where rate of them are
// allowed in each period. It fills at that rate until it holds rate. Everything
// is counted in integers: what is less than one is kept for later, so that no
// rounding adds up. The zero bucket is full.
type bucket struct {
	level int64 // below zero where more was used than was foreseen
	part  int64 // and this many parts of one, which has as many as the period has nanoseconds
	at    int64 // the Unix time in nanoseconds at which it was so; zero: never used
}

// most bounds rates and debts, so that nothing below can overflow.
const most = 1 << 53

// disorder is how far apart calls may come in that read the clock in another
// order. The later one then adds nothing: it would count the same time again.
const disorder = time.Second

// fill brings b to the time now. What a smaller rate does not allow to be held
// is gone at once, a greater one fills faster from now on.
func (b *bucket) fill(now, rate int64, period time.Duration) {
	elapsed := now - b.at
	full := b.at == 0 || b.level >= rate
	if elapsed > 0 || elapsed < -int64(disorder) {
		b.at = now // a clock that was set back counts on from there
	}
	if !full && elapsed > 0 {
		high, low := bits.Mul64(uint64(elapsed), uint64(rate))
		low, carry := bits.Add64(low, uint64(b.part), 0)
		high += carry
		if full = high >= uint64(period); !full {
			whole, part := bits.Div64(high, low, uint64(period))
			if full = whole >= uint64(rate-b.level); !full {
				b.level, b.part = b.level+int64(whole), int64(part)
			}
		}
	}
	if full {
		b.level, b.part = rate, 0
	}
}

// until returns how long it takes until b holds n, which is at most rate.
func (b *bucket) until(n, rate int64, period time.Duration) time.Duration {
	if b.level >= n {
		return 0
	}
	high, low := bits.Mul64(uint64(n-b.level), uint64(period))
	low, borrow := bits.Sub64(low, uint64(b.part), 0)
	high -= borrow
	low, carry := bits.Add64(low, uint64(rate-1), 0) // round up: the moment before is too early
	high += carry
	if high >= uint64(rate) {
		return math.MaxInt64
	}
	wait, _ := bits.Div64(high, low, uint64(rate))
	return time.Duration(min(wait, math.MaxInt64))
}

// take takes n, whether or not b holds so many. A negative n gives back; the
// next fill takes what is more than a full bucket.
func (b *bucket) take(n int64) {
	b.level = max(b.level-min(n, most), -most)
}
