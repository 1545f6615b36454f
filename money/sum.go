package money

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strings"
)

// Factor multiplies a rate. Its unit is 1/[One].
type Factor int64

const (
	// One is the factor 1. A Factor is the product of two decimals with four places each.
	One Factor = 1_0000_0000

	// factorPlaces is the value of the last decimal place of a factor, in nano-units.
	factorPlaces = Unit / 1_0000

	// maxFactor is the highest factor in a configuration.
	maxFactor = 1000 * Unit
)

// ValidFactor reports whether a can be used as a factor: it is from 0.0001 to
// 1000 and has at most four decimal places.
func ValidFactor(a Amount) bool { return a > 0 && a <= maxFactor && a%factorPlaces == 0 }

// FactorOf returns the product of a and b, which must be valid factors.
func FactorOf(a, b Amount) Factor { return Factor(a/factorPlaces) * Factor(b/factorPlaces) }

// Sum is the exact cost of items, each multiplied by a factor, in 192 bits. The zero value is zero.
// Many thousands of items cannot overflow it.
type Sum struct {
	words [3]uint64 // lowest first; the unit is a nano-unit/(Million*One)
	bad   bool      // a number was negative, or the sum has overflowed
}

// Add adds the cost of item multiplied by factor.
func (s *Sum) Add(item Item, factor Factor) {
	if item.Count == 0 || item.Rate == 0 || factor == 0 {
		return
	}
	if item.Count < 0 || item.Rate < 0 || factor < 0 {
		s.bad = true
		return
	}
	high, low := bits.Mul64(uint64(item.Count), uint64(item.Rate))
	carry, first := bits.Mul64(low, uint64(factor))
	third, second := bits.Mul64(high, uint64(factor))
	second, c := bits.Add64(second, carry, 0)
	third += c
	s.words[0], c = bits.Add64(s.words[0], first, 0)
	s.words[1], c = bits.Add64(s.words[1], second, c)
	s.words[2], c = bits.Add64(s.words[2], third, c)
	s.bad = s.bad || c != 0
}

// Plus adds another sum.
func (s *Sum) Plus(o Sum) {
	var c uint64
	for i := range s.words {
		s.words[i], c = bits.Add64(s.words[i], o.words[i], c)
	}
	s.bad = s.bad || o.bad || c != 0
}

// Less reports whether s is smaller than o. An invalid sum is larger than any valid one.
func (s *Sum) Less(o *Sum) bool {
	if s.bad || o.bad {
		return !s.bad
	}
	for i := len(s.words) - 1; i >= 0; i-- {
		if s.words[i] != o.words[i] {
			return s.words[i] < o.words[i]
		}
	}
	return false
}

// String returns the exact sum as a decimal number with at least two places.
func (s *Sum) String() string {
	n := new(big.Int)
	for i := len(s.words) - 1; i >= 0; i-- {
		n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(s.words[i]))
	}
	const places = scale + 14 // a nano-unit is Million*One units of the sum
	digits := fmt.Sprintf("%0*d", places+1, n)
	point := len(digits) - places
	fraction := strings.TrimRight(digits[point:], "0")
	return fmt.Sprintf("%s.%s", digits[:point], fraction+strings.Repeat("0", max(0, 2-len(fraction))))
}

// Amount returns the sum, rounded up, or false if a count, a rate or a factor was negative or the sum
// is larger than [Max].
func (s *Sum) Amount() (Amount, bool) {
	const divisor = uint64(Million) * uint64(One)
	if s.bad || s.words[2] >= divisor {
		return 0, false
	}
	high, rest := bits.Div64(s.words[2], s.words[1], divisor)
	low, rest := bits.Div64(rest, s.words[0], divisor)
	if high != 0 || low > math.MaxInt64 || low == math.MaxInt64 && rest > 0 {
		return 0, false
	}
	if rest > 0 {
		low++
	}
	return Amount(low), true
}
