// Package money represents sums of money and prices as integers: nano-units, a
// billionth of one dollar, euro or yuan. It uses no floating point.
//
// [Amount] is a sum and [Rate] a price; [Cost] multiplies counts by rates and
// rounds up once. In JSON and in all text an amount is a decimal string. Every
// operation that could leave the range reports it instead of wrapping around.
// The package imports the standard library alone, so that payment services of
// third parties can use it.
package money

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Amount is a sum of money in nano-units. It may be negative: a difference, or
// the side of an account that gave. It reads and writes itself as a decimal
// string, "9.90", in JSON and in text.
type Amount int64

// Unit is one whole unit of the currency: nine decimal places lie below it.
const (
	Unit  Amount = 1_000_000_000
	Max   Amount = math.MaxInt64
	scale        = 9
)

// Errors of [Parse], for callers that say more than it does.
var (
	ErrSyntax    = errors.New("not a decimal number such as 9.90")
	ErrPrecision = errors.New("more than nine decimal places")
	ErrRange     = errors.New("out of range")
)

// Parse reads a decimal number, such as 9.90 or -0.000000001: an optional minus,
// digits, and at most nine decimal places. More precision than a nano-unit is
// refused, not rounded, and so is an exponent, a plus and a lone point.
func Parse(text string) (Amount, error) {
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	switch noDigit := func(c rune) bool { return c < '0' || c > '9' }; {
	case whole == "", point && fraction == "", strings.ContainsFunc(whole+fraction, noDigit):
		return 0, fmt.Errorf("%q: %w", text, ErrSyntax)
	case len(fraction) > scale:
		return 0, fmt.Errorf("%q: %w", text, ErrPrecision)
	}
	var n uint64
	for _, c := range []byte(whole + fraction + strings.Repeat("0", scale-len(fraction))) {
		if n > (math.MaxInt64-uint64(c-'0'))/10 {
			return 0, fmt.Errorf("%q: %w", text, ErrRange)
		}
		n = n*10 + uint64(c-'0')
	}
	if negative {
		return -Amount(n), nil
	}
	return Amount(n), nil
}

// longest is how long an amount is at most: -9223372036.854775808.
const longest = 21

// String returns the amount with two decimal places at least and no zero
// behind them: 9.90, 0.000000001, -3.00.
func (a Amount) String() string { return string(a.Append(nil)) }

// Append appends the amount, as String writes it, to dst.
func (a Amount) Append(dst []byte) []byte {
	dst = slices.Grow(dst, longest)
	n := uint64(a)
	if a < 0 {
		dst, n = append(dst, '-'), -n
	}
	dst = append(strconv.AppendUint(dst, n/uint64(Unit), 10), '.')
	point, end := len(dst)-1, len(dst)+scale
	dst = dst[:end]
	fraction := n % uint64(Unit)
	for place := end - 1; place > point; place-- {
		dst[place], fraction = '0'+byte(fraction%10), fraction/10
	}
	for dst[end-1] == '0' && end-3 > point {
		end--
	}
	return dst[:end]
}

// MarshalText writes the amount as a decimal, which is a string in JSON: what
// MarshalJSON returned, encoding/json would read through once more.
func (a Amount) MarshalText() ([]byte, error) { return a.Append(make([]byte, 0, longest)), nil }

// UnmarshalJSON reads a decimal string. A JSON number is refused: its writer
// may have rounded it.
func (a *Amount) UnmarshalJSON(text []byte) error {
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return errors.New(`an amount is a decimal string such as "9.90"`)
	}
	n, err := Parse(word)
	if err != nil {
		return fmt.Errorf("amount %w", err)
	}
	*a = n
	return nil
}

// Add returns a + b, and false when that lies outside the range.
func (a Amount) Add(b Amount) (Amount, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0)
}

// Rate is a price in nano-units per million of what is counted: tokens, or
// whole things where a price is for one of them.
type Rate int64

// Million is how many of what is counted a [Rate] is the price of.
const Million = 1_000_000

// RateOf returns the rate at which a million cost a.
func RateOf(a Amount) Rate { return Rate(a) }

// Item is a number of something at a rate.
type Item struct {
	Count int64
	Rate  Rate
}

// Cost returns what items cost together, in 128 bits and rounded up once, so
// that splitting a call into kinds never costs more than a nano-unit. It returns
// false when a count or a rate is negative or the sum is larger than [Max].
func Cost(items ...Item) (Amount, bool) {
	var high, low uint64
	for _, item := range items {
		if item.Count == 0 {
			continue
		}
		if item.Count < 0 || item.Rate < 0 {
			return 0, false
		}
		h, l := bits.Mul64(uint64(item.Count), uint64(item.Rate))
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		if high, carry = bits.Add64(high, h, carry); carry != 0 {
			return 0, false
		}
	}
	var carry uint64
	low, carry = bits.Add64(low, Million-1, 0)
	high += carry // cannot overflow: the sum of few products of 63 bits
	if high >= Million {
		return 0, false
	}
	quotient, _ := bits.Div64(high, low, Million)
	if quotient > math.MaxInt64 {
		return 0, false
	}
	return Amount(quotient), true
}
