package money

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestAmountsAreDecimalStrings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		amount Amount
		shown  string
	}{
		"0":                     {0, "0.00"},
		"9.90":                  {9_900_000_000, "9.90"},
		"9.9":                   {9_900_000_000, "9.90"},
		"007":                   {7_000_000_000, "7.00"},
		"0.000000001":           {1, "0.000000001"},
		"-0.5":                  {-500_000_000, "-0.50"},
		"12.345":                {12_345_000_000, "12.345"},
		"9223372036.854775807":  {math.MaxInt64, "9223372036.854775807"},
		"-9223372036.854775807": {-math.MaxInt64, "-9223372036.854775807"},
	} {
		got, err := Parse(text)
		if err != nil || got != want.amount || got.String() != want.shown {
			t.Errorf("%s: got %d %q %v, want %d %q", text, got, got, err, want.amount, want.shown)
		}
	}
}

func TestInvalidAmountsAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "-", ".", "1.", ".5", "+1", "1e3", "1,5", " 1", "1 ", "0x1", "--1", "1.0000000001", "1.-5",
		"9223372036.854775808", "99999999999999999999", "NaN", "١",
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	for _, text := range []string{"1", "1.5", "null", `"1e3"`, `{}`} {
		var a Amount
		if err := json.Unmarshal([]byte(`{"a":`+text+`}`), &struct{ A *Amount }{&a}); err == nil && text != "null" {
			t.Errorf("JSON %s was read as %v", text, a)
		}
	}
}

func TestParseReturnsTheReason(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"ten": ErrSyntax, "1.00000000x1": ErrSyntax, "-x": ErrSyntax,
		"1.0000000001": ErrPrecision, "-0.1000000000": ErrPrecision,
		"9223372036.854775808": ErrRange, "99999999999999999999.0000000001": ErrPrecision,
	} {
		if _, err := Parse(text); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", text, err, want)
		}
	}
}

func TestAmountsRoundTripAsJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := Amount(rapid.Int64Range(-math.MaxInt64, math.MaxInt64).Draw(t, "amount"))
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Amount
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Fatalf("%d is encoded as %s and decoded as %d, %v", want, text, got, err)
		}
	})
}

func TestCostIsTheExactSumRoundedUpOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.OneOf(rapid.Int64Range(0, 1<<20), rapid.Int64Range(0, math.MaxInt64))
		var items []Item
		exact := new(big.Int)
		for range rapid.IntRange(0, 8).Draw(t, "items") {
			item := Item{numbers.Draw(t, "count"), Rate(numbers.Draw(t, "rate"))}
			items = append(items, item)
			exact.Add(exact, new(big.Int).Mul(big.NewInt(item.Count), big.NewInt(int64(item.Rate))))
		}
		exact.Add(exact, big.NewInt(Million-1)).Div(exact, big.NewInt(Million))
		got, ok := Cost(items...)
		if ok != exact.IsInt64() || ok && int64(got) != exact.Int64() {
			t.Fatalf("%v cost %d, %v; want %v", items, got, ok, exact)
		}
	})
	for _, items := range [][]Item{{{-1, 1}}, {{1, -1}}, {{math.MaxInt64, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}}} {
		if got, ok := Cost(items...); ok {
			t.Errorf("%v cost %v", items, got)
		}
	}
}

func TestAddReportsOverflow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b Amount
		ok   bool
	}{
		{1, 2, true}, {Max, 0, true}, {Max, 1, false}, {-Max, -2, false}, {Max, -Max, true}, {0, 0, true}, {5, -5, true},
	} {
		if sum, ok := c.a.Add(c.b); ok != c.ok || ok && sum != c.a+c.b {
			t.Errorf("%d + %d = %d, %v", c.a, c.b, sum, ok)
		}
	}
}
