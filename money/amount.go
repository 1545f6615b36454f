// Package money represents amounts of money and prices as integers in nano-units. A nano-unit is a
// billionth of one dollar, euro or yuan. The package uses no floating point.
//
// [Amount] is an amount and [Rate] a price. [Cost] multiplies counts by rates and rounds up once. In
// JSON and in text, an amount is a decimal string. Operations report a result out of range; they do
// not wrap around. The package imports only the standard library, so that payment services of third
// parties can use it.
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

// Amount is an amount of money in nano-units. It may be negative. In JSON and in text it is a
// decimal string, such as "9.90".
type Amount int64

// Unit is one unit of the currency. An amount has scale decimal places.
const (
	Unit  Amount = 1_000_000_000
	Max   Amount = math.MaxInt64
	scale        = 9
)

// Errors of [Parse].
var (
	ErrSyntax    = errors.New("not a decimal number such as 9.90")
	ErrPrecision = errors.New("more than nine decimal places")
	ErrRange     = errors.New("out of range")
)

// Parse parses a decimal number, such as 9.90 or -0.000000001: an optional minus sign, digits, and at
// most nine decimal places. It never rounds, and accepts no exponent and no plus sign.
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

// longest is the maximum length of an amount as text: -9223372036.854775808.
const longest = 21

// String returns the amount with at least two decimal places and without further trailing zeros:
// 9.90, 0.000000001, -3.00.
func (a Amount) String() string { return string(a.Append(nil)) }

// Append appends the amount, as String returns it, to dst.
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

// MarshalText returns the amount as decimal text, which becomes a string in JSON. With MarshalJSON,
// encoding/json would validate the text a second time.
func (a Amount) MarshalText() ([]byte, error) { return a.Append(make([]byte, 0, longest)), nil }

// UnmarshalJSON decodes a decimal string. It refuses a JSON number, because the sender may have
// rounded it.
func (a *Amount) UnmarshalJSON(text []byte) error {
	var decimal string
	if err := json.Unmarshal(text, &decimal); err != nil {
		return errors.New(`an amount is a decimal string such as "9.90"`)
	}
	n, err := Parse(decimal)
	if err != nil {
		return fmt.Errorf("amount %w", err)
	}
	*a = n
	return nil
}

// Add returns a + b, or false if the sum is out of range.
func (a Amount) Add(b Amount) (Amount, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0)
}

// Rate is a price in nano-units per million of the counted items, such as tokens.
type Rate int64

// Million is the number of items that a [Rate] is the price of.
const Million = 1_000_000

// RateOf returns the rate at which a million items cost a.
func RateOf(a Amount) Rate { return Rate(a) }

// Item is a number of items at a rate.
type Item struct {
	Count int64
	Rate  Rate
}

// Cost returns the total cost of items. It computes in 128 bits and rounds up once, so rounding adds
// less than a nano-unit however many kinds a call has. It returns false if a count or a rate is
// negative or the sum is larger than [Max].
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
	high += carry // cannot overflow: a sum of few products of 63-bit numbers
	if high >= Million {
		return 0, false
	}
	quotient, _ := bits.Div64(high, low, Million)
	if quotient > math.MaxInt64 {
		return 0, false
	}
	return Amount(quotient), true
}
