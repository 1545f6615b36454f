package money

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestSumIsExactAndRoundedUpOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.OneOf(rapid.Int64Range(0, 1<<20), rapid.Int64Range(0, math.MaxInt64))
		factors := rapid.Int64Range(1, 1000_0000)
		var sum Sum
		exact := new(big.Int)
		for range rapid.IntRange(0, 8).Draw(t, "items") {
			item := Item{numbers.Draw(t, "count"), Rate(numbers.Draw(t, "rate"))}
			factor := FactorOf(Amount(factors.Draw(t, "tier"))*factorPlaces, Amount(factors.Draw(t, "geo"))*factorPlaces)
			sum.Add(item, factor)
			product := new(big.Int).Mul(big.NewInt(item.Count), big.NewInt(int64(item.Rate)))
			exact.Add(exact, product.Mul(product, big.NewInt(int64(factor))))
		}
		divisor := big.NewInt(Million * int64(One))
		exact.Add(exact, new(big.Int).Sub(divisor, big.NewInt(1))).Div(exact, divisor)
		got, ok := sum.Amount()
		if ok != exact.IsInt64() || ok && int64(got) != exact.Int64() {
			t.Fatalf("the sum is %d, %v; want %v", got, ok, exact)
		}
	})
}

func TestSumWithoutFactorsIsCost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		item := Item{rapid.Int64Range(-1, math.MaxInt64).Draw(t, "count"), Rate(rapid.Int64Range(-1, math.MaxInt64).Draw(t, "rate"))}
		if item.Count == 0 || item.Rate == 0 {
			return // Cost checks the sign of both
		}
		var sum Sum
		sum.Add(item, One)
		got, ok := sum.Amount()
		if want, wantOK := Cost(item); ok != wantOK || ok && got != want {
			t.Fatalf("%v: got %v, %v, want %v, %v", item, got, ok, want, wantOK)
		}
	})
}

func TestTheTextOfASumIsExact(t *testing.T) {
	t.Parallel()
	var sum Sum
	for _, c := range []struct {
		item   Item
		factor Factor
		want   string
	}{
		{Item{}, One, "0.00"},
		{Item{1_000_000, Rate(Unit)}, One, "1.00"},
		{Item{3, 1}, One / 2, "1.0000000000000015"},
		{Item{1, 1}, 1, "1.00000000000000150000001"},
		{Item{1_000_000, Rate(12 * Unit)}, One, "13.00000000000000150000001"},
	} {
		sum.Add(c.item, c.factor)
		if got := sum.String(); got != c.want {
			t.Errorf("with %v the sum is %s, want %s", c.item, got, c.want)
		}
	}
}

func TestFactorsHaveFourPlaces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"0": false, "-1": false, "0.0001": true, "0.00011": false, "0.5": true, "1000": true, "1000.0001": false, "1.1": true,
	} {
		a, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := ValidFactor(a); got != want {
			t.Errorf("ValidFactor(%s) is %v", text, got)
		}
	}
	if got := FactorOf(Unit, Unit); got != One {
		t.Errorf("1 times 1 is %d", got)
	}
}
