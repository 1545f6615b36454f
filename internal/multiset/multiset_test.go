package multiset_test

import (
	"strconv"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/multiset"
)

func TestEqualComparesCounts(t *testing.T) {
	t.Parallel()
	type count struct {
		name string
		by   int64
	}
	for what, c := range map[string]struct {
		counts []count
		equal  bool
	}{
		"nothing":                   {nil, true},
		"a pair":                    {[]count{{"a", 1}, {"a", -1}}, true},
		"a pair in the other order": {[]count{{"a", -1}, {"a", 1}}, true},
		"two mixed pairs":           {[]count{{"a", 1}, {"b", 1}, {"a", -1}, {"b", -1}}, true},
		"one against many":          {[]count{{"a", 1}, {"a", 1}, {"a", 1}, {"a", -3}}, true},
		"a count of zero":           {[]count{{"a", 0}}, true},
		"one added":                 {[]count{{"a", 1}}, false},
		"one removed":               {[]count{{"a", -1}}, false},
		"one added twice":           {[]count{{"a", 1}, {"a", 1}, {"a", -1}}, false},
		"different elements":        {[]count{{"a", 1}, {"b", -1}}, false},
		"an empty element":          {[]count{{"", 1}}, false},
	} {
		sums := multiset.New()
		for _, n := range c.counts {
			sums.Add([]byte(n.name), n.by)
		}
		if sums.Equal() != c.equal {
			t.Errorf("%s: equal is %v", what, sums.Equal())
		}
	}
}

func TestADifferenceIsFoundInFewGroups(t *testing.T) {
	t.Parallel()
	const names = 1 << 14
	name := func(i int) []byte { return []byte(strconv.Itoa(i)) }
	sums := multiset.New()
	for i := range names {
		sums.Add(name(i), +2)
		sums.Add(name(i), -2)
	}
	sums.Add(name(7), +1)
	if sums.Equal() || sums.EqualFor(name(7)) {
		t.Error("a difference is not detected")
	}
	left := 0
	for i := range names {
		if !sums.EqualFor(name(i)) {
			left++
		}
	}
	if left > names/100 {
		t.Errorf("%d of %d elements must be compared", left, names)
	}
}
