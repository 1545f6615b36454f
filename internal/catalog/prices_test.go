package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func perRequest(patterns ...string) []Price {
	rows := make([]Price, len(patterns))
	for i, p := range patterns {
		rows[i] = Price{Model: Pattern(p), Request: 1}
	}
	return rows
}

func TestExactNamesAndLongerPrefixesTakePrecedence(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]string{
		"in one order": {"claude-*", "claude-3", "claude-3*", "claude-30-*", "gpt-*", "gpt"},
		"in another":   {"gpt", "claude-30-*", "gpt-*", "claude-3*", "claude-3", "claude-*"},
	} {
		ps, err := NewPrices(perRequest(rows...))
		if err != nil {
			t.Fatal(err)
		}
		for model, want := range map[string]Pattern{
			"claude-3": "claude-3", "claude-30": "claude-3*", "claude-30-": "claude-30-*", "claude-30-x": "claude-30-*",
			"claude-3.5": "claude-3*", "claude-": "claude-*", "claude-2": "claude-*", "claude-31": "claude-3*", "gpt": "gpt", "gpt-": "gpt-*",
			"claude": "", "gpu": "", "": "", "a": "", "z": "", "Claude-3": "",
		} {
			got, ok := ps.Find(model)
			if ok != (want != "") || ok && got.Model != want {
				t.Errorf("%s: the price of %q is %v, %v, want %q", name, model, got, ok, want)
			}
		}
	}
}

func TestEveryModelHasThePriceOfItsLongestPattern(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[abc]{0,5}`)
	rapid.Check(t, func(t *rapid.T) {
		var patterns []string
		for _, w := range rapid.SliceOfNDistinct(word, 0, 30, rapid.ID[string]).Draw(t, "words") {
			if w == "" || rapid.Bool().Draw(t, "prefix") {
				w += "*"
			}
			patterns = append(patterns, w)
		}
		ps, err := NewPrices(perRequest(patterns...))
		if err != nil {
			t.Fatal(err)
		}
		model := rapid.StringMatching(`[abc]{0,7}`).Draw(t, "model")
		want := ""
		for _, p := range patterns {
			if Pattern(p).Match(model) && (want == "" || strings.HasSuffix(want, "*") && (Pattern(p).Exact() || len(p) > len(want))) {
				want = p
			}
		}
		got, ok := ps.Find(model)
		if ok != (want != "") || ok && string(got.Model) != want {
			t.Fatalf("with the patterns %q, the price of %q is %v, %v, want %q", patterns, model, got, ok, want)
		}
	})
}

func TestPrefixesBarAmbiguousNames(t *testing.T) {
	t.Parallel()
	ps, err := NewPrices(perRequest("plain-*", "plain-a:free", "tagged:*"))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]struct{ found, bars bool }{
		"plain-a": {true, false}, "plain-a:online": {false, true}, "plain-a:free": {true, false}, "plain-a,expensive": {false, true},
		"plain-a/../expensive": {false, true}, "tagged:7b": {true, false}, "tagged:7b,expensive": {false, true}, "other:7b": {false, false},
	} {
		if _, found := ps.Find(model); found != want.found || ps.Bars(model) != want.bars {
			t.Errorf("%q: found is %v, barred is %v, want %v", model, found, ps.Bars(model), want)
		}
	}
}

func TestDuplicatePricesAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := NewPrices(perRequest("a", "b*", "a")); err == nil || !strings.Contains(err.Error(), "price a is given twice") {
		t.Errorf("a duplicate: the error is %v", err)
	}
	if _, err := NewPrices(perRequest("a", "a*")); err != nil {
		t.Errorf("a name and a prefix: the error is %v", err)
	}
	if _, err := NewPrices([]Price{{Model: "a"}}); err == nil {
		t.Error("an invalid row was accepted")
	}
}

func TestNamesAreExactNames(t *testing.T) {
	t.Parallel()
	ps, err := NewPrices(perRequest("z", "b*", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if got := ps.Names(); !slices.Equal(got, []string{"z", "a"}) || ps.Len() != 3 {
		t.Errorf("the %d prices have the names %q", ps.Len(), got)
	}
	if none, err := NewPrices(nil); err != nil || none.Len() != 0 {
		t.Errorf("without rows, NewPrices returned %v, %v", none, err)
	} else if p, ok := none.Find("a"); ok {
		t.Errorf("without rows, Find returned %v", p)
	}
}

// hundreds returns a large set of prices, as operators with many vendors have.
func hundreds(t testing.TB) *Prices {
	var patterns []string
	for vendor := range 20 {
		patterns = append(patterns, fmt.Sprintf("vendor-%d/*", vendor))
		for model := range 20 {
			patterns = append(patterns, fmt.Sprintf("vendor-%d/model-%d-*", vendor, model))
		}
	}
	ps, err := NewPrices(perRequest(patterns...))
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func TestFindingAPriceAllocatesNothing(t *testing.T) {
	ps := hundreds(t)
	found := 0
	if n := testing.AllocsPerRun(100, func() {
		if p, ok := ps.Find("vendor-7/model-13-large"); ok && p.Model == "vendor-7/model-13-*" {
			found++
		}
	}); n != 0 || found == 0 {
		t.Errorf("%v allocations, found %d times", n, found)
	}
}

func BenchmarkFindAmongHundreds(b *testing.B) {
	ps := hundreds(b)
	for b.Loop() {
		ps.Find("vendor-7/model-13-large")
	}
}
