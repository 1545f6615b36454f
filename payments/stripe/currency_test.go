package stripe

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

func TestAmountsInMinorUnits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		amount, currency string
		want             int64 // zero: refused
	}{
		{"9.90", "USD", 990},
		{"0.01", "EUR", 1},
		{"9223372036.85", "USD", 922337203685},
		{"9.901", "USD", 0},
		{"0.000000001", "USD", 0},
		{"0", "USD", 0},
		{"-1", "USD", 0},
		{"500", "JPY", 500},
		{"500.5", "JPY", 0},
		{"0.01", "KRW", 0},
		{"5.12", "KWD", 5120},
		{"5.124", "KWD", 0},
		{"0.01", "TND", 10},
		{"5", "ISK", 500},
		{"5.01", "ISK", 0},
		{"5.01", "HUF", 501},
		{"5", "UGX", 0},
		{"5", "usd", 0},
		{"5", "", 0},
		{"5", "EURO", 0},
	} {
		amount := paymentstest.Amount(row.amount)
		got, err := toMinor(amount, row.currency)
		if (err == nil) != (row.want != 0) || got != row.want {
			t.Errorf("%s %s is %d (%v), want %d", row.amount, row.currency, got, err, row.want)
		}
		if err != nil {
			continue
		}
		if back, err := fromMinor(got, row.currency); err != nil || back != amount {
			t.Errorf("fromMinor(%d, %s) is %s (%v), want %s", got, row.currency, back, err, amount)
		}
	}
}

func TestARefusedAmountNamesTheSmallestUnit(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]string{
		"USD": "the payment service does not accept this amount: 9.905 USD is not a positive multiple of 0.01",
		"JPY": "the payment service does not accept this amount: 9.905 JPY is not a positive multiple of 1.00",
		"KWD": "the payment service does not accept this amount: 9.905 KWD is not a positive multiple of 0.01",
	} {
		if _, err := toMinor(paymentstest.Amount("9.905"), currency); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFromMinorReturnsTheAmountOrAnError(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n")
		currency := rapid.SampledFrom([]string{"USD", "JPY", "KWD", "ISK"}).Draw(t, "currency")
		amount, err := fromMinor(n, currency)
		if err != nil {
			if n > 0 && n <= int64(money.Max/money.Unit) {
				t.Fatalf("fromMinor(%d, %s) returned %v", n, currency, err)
			}
			return
		}
		s, err := scaleOf(currency)
		if err != nil {
			t.Fatal(err)
		}
		if amount <= 0 || amount/s.minor != money.Amount(n) || amount%s.minor != 0 {
			t.Fatalf("fromMinor(%d, %s) is %s", n, currency, amount)
		}
	})
}
