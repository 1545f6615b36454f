package stripe

import (
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// scale describes Stripe's representation of amounts in a currency.
type scale struct {
	minor money.Amount // value of one of Stripe's units
	step  int64        // the smallest payable amount in these units
}

var (
	hundredths = scale{money.Unit / 100, 1}
	whole      = scale{money.Unit, 1}
	// The last of three decimal places must be zero.
	thousandths = scale{money.Unit / 1000, 10}
)

// scales are the currencies that Stripe does not count in hundredths
// (https://docs.stripe.com/currencies). HUF and TWD are whole only in payouts.
// For UGX see scaleOf.
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

	"ISK": {money.Unit / 100, 100}, // whole, but represented in hundredths
}

// scaleOf returns the scale of a currency. Stripe's documentation contradicts itself about UGX: it is
// whole in one place and in hundredths in another. An order in UGX is refused, because the error
// could be a factor of 100.
func scaleOf(currency string) (scale, error) {
	if len(currency) != 3 || strings.Trim(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return scale{}, fmt.Errorf("currency %q is not supported; allowed: three capital letters", currency)
	}
	if currency == "UGX" {
		return scale{}, fmt.Errorf("the currency UGX is not supported: Stripe documents two representations")
	}
	if s, ok := scales[currency]; ok {
		return s, nil
	}
	return hundredths, nil
}

// CheckCurrency implements payments.CurrencyChecker.
func (*Stripe) CheckCurrency(currency string) error {
	_, err := scaleOf(currency)
	return err
}

// toMinor returns an amount in Stripe's units. It returns an error for an amount that is not a
// multiple of the currency's step; it never rounds.
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

// fromMinor returns the amount of n of Stripe's units. n must be positive.
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
