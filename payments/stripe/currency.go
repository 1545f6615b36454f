package stripe

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// scale is how Stripe writes amounts of a currency.
type scale struct {
	minor money.Amount // what one of Stripe's integers is worth
	step  int64        // how many of them the smallest payable sum is
}

var (
	hundredths = scale{money.Unit / 100, 1}
	whole      = scale{money.Unit, 1}
	// The last of three decimal places must be zero.
	thousandths = scale{money.Unit / 1000, 10}
)

// scales are the currencies that are not counted in hundredths
// (https://docs.stripe.com/currencies). HUF and TWD are whole only in payouts.
// UGX is missing on purpose, see toMinor.
var scales = map[string]scale{
	"BIF": whole,
	"CLP": whole,
	"DJF": whole,
	"GNF": whole,
	"JPY": whole,
	"KMF": whole,
	"KRW": whole,
	"MGA": whole,
	"PYG": whole,
	"RWF": whole,
	"VND": whole,
	"VUV": whole,
	"XAF": whole,
	"XOF": whole,
	"XPF": whole,

	"BHD": thousandths,
	"JOD": thousandths,
	"KWD": thousandths,
	"OMR": thousandths,
	"TND": thousandths,

	"ISK": {money.Unit / 100, 100}, // whole, but written as if it were not
}

// scaleOf returns how amounts of a currency are written. Stripe's own pages
// disagree about UGX, which they count among the whole ones in one place and
// in hundredths in another; an error of a hundred times is refused instead.
func scaleOf(currency string) (scale, error) {
	if len(currency) != 3 {
		return scale{}, fmt.Errorf("%q is no currency", currency)
	}
	for _, c := range []byte(currency) {
		if c < 'A' || c > 'Z' {
			return scale{}, fmt.Errorf("%q is no currency of three capitals", currency)
		}
	}
	if currency == "UGX" {
		return scale{}, fmt.Errorf("the currency UGX is not supported: Stripe writes it in two ways")
	}
	if s, ok := scales[currency]; ok {
		return s, nil
	}
	return hundredths, nil
}

// toMinor returns an amount as Stripe writes it. One that is not a whole number
// of the currency's steps is refused, never rounded.
func toMinor(a money.Amount, currency string) (int64, error) {
	s, err := scaleOf(currency)
	if err != nil {
		return 0, err
	}
	smallest := s.minor * money.Amount(s.step)
	if a <= 0 || a%smallest != 0 {
		return 0, fmt.Errorf("%w: %s %s is not a positive multiple of %s", payments.ErrAmount, a, currency, smallest)
	}
	return int64(a / s.minor), nil
}

// fromMinor returns the amount that Stripe wrote as n. It must be more than
// zero.
func fromMinor(n int64, currency string) (money.Amount, error) {
	s, err := scaleOf(currency)
	if err != nil {
		return 0, err
	}
	if n <= 0 || n > int64(money.Max/s.minor) {
		return 0, fmt.Errorf("an amount of %d minor units of %s is out of range", n, currency)
	}
	return money.Amount(n) * s.minor, nil
}
