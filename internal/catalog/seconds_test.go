package catalog_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

func TestSecondsAreExact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]catalog.Seconds{
		"5": 5_000_000, "5.5": 5_500_000, "0.000001": 1, "0.1": 100_000, "86400": catalog.MaxSeconds, "1e1": 10_000_000, "12E-1": 1_200_000, "1e-6": 1,
		"0": 0, "-0": 0, "-5": 0, "0.0000001": 0, "1.0000001": 0, "86400.000001": 0, "86401": 0, "1e309": 0, "1e999999999": 0, "1e-999999999": 0, "NaN": 0, "Inf": 0,
		"": 0, "5s": 0, "0x5": 0, "5 ": 0, "1/2": 0, "0.00000000000000000000000000000001e37": 0,
	} {
		got, refused := catalog.ParseSeconds(text)
		if got != want || (refused == nil) != (want > 0) {
			t.Errorf("ParseSeconds(%q) is %d, %v, want %d", text, got, refused, want)
		}
	}
}

func TestSecondsRoundTripAsText(t *testing.T) {
	t.Parallel()
	for want, text := range map[catalog.Seconds]string{0: "0", 5_000_000: "5", 5_500_000: "5.5", 1: "0.000001", 10_000_000: "10", 100_010_000: "100.01", -2_500_000: "-2.5"} {
		if got := want.String(); got != text {
			t.Errorf("the text of %d is %s, want %s", int64(want), got, text)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := catalog.Seconds(rapid.Int64Range(1, int64(catalog.MaxSeconds)).Draw(t, "seconds"))
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got catalog.Seconds
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Fatalf("%d is encoded as %s and decoded as %d, %v", int64(want), text, int64(got), err)
		}
	})
	if n, whole := (5 * catalog.Second).Whole(); n != 5 || !whole {
		t.Errorf("Whole of 5 s is %d, %v", n, whole)
	}
	if _, whole := (5*catalog.Second + 1).Whole(); whole {
		t.Error("5.000001 s is a whole number")
	}
}
