package strictjson

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// numbered returns rules like r with the names n000, n001 and so on.
func numbered(count int, r Rule) (rules []Rule) {
	for n := range count {
		r.Name = fmt.Sprintf("n%03d", n)
		rules = append(rules, r)
	}
	return rules
}

func TestTheLimitOfBitsDoesNotApplyToNotedRules(t *testing.T) {
	t.Parallel()
	rules := append(numbered(999, Rule{Note: 1}), Rule{Name: "model", Required: true, Deciding: true})
	table := NewTable(rules...)
	var notes []Note
	if f := table.ScanNotes([]byte(`{"n000":1,"n998":2,"n000":3,"model":4}`), make([]Value, 1), &notes); f != nil || len(notes) != 3 {
		t.Errorf("the error is %v, with %d notes", f, len(notes))
	}
	for body, want := range map[string]string{`{"n000":1}`: "`model` is required", `{"model":1,"model":2}`: "`model` is given twice"} {
		if f := table.ScanNotes([]byte(body), make([]Value, 1), &notes); f == nil || f.Message != want {
			t.Errorf("%s: the error is %v, want %s", body, f, want)
		}
	}
}

func TestNewTableRefusesContradictoryRules(t *testing.T) {
	t.Parallel()
	stored := NewTable(Rule{Name: "x", Slot: 1})
	deep := NewTable()
	for range maxNesting - 1 {
		deep = NewTable(Rule{Name: "x", Kinds: Object, Members: deep})
	}
	for _, c := range []struct {
		want  string
		rules []Rule
	}{
		{`rule "": a name has 1 to 64 bytes`, []Rule{{}}},
		{`a name has 1 to 64 bytes`, []Rule{{Name: strings.Repeat("x", 65)}}},
		{`rule "x": slot -1 is negative`, []Rule{{Name: "x", Slot: -1}}},
		{`rule "x": it stores its elements, but is not an array`, []Rule{{Name: "x", Kinds: String, Elements: 1}}},
		{`rule "x": note -1 is negative`, []Rule{{Name: "x", Note: -1}}},
		{`rule "x": it has usual strings, but does not note strings`, []Rule{{Name: "x", Usual: []string{"a"}}}},
		{`rule "x": it has inner elements, but its elements are not arrays`, []Rule{{Name: "x", Kinds: Array, Elem: Integer, Inner: Integer}}},
		{`rule "X": another rule has this name`, []Rule{{Name: "x"}, {Name: "X"}}},
		{`rule "y": slot 1 is already used`, []Rule{{Name: "x", Slot: 1}, {Name: "y", Slot: 1}}},
		{`rule "yy": slot 1 is already used`, []Rule{{Name: "x", Slot: 1}, {Name: "yy", Kinds: Object, Members: stored}}},
		{`rule "x": it has elements, but is not an array`, []Rule{{Name: "x", Kinds: Object, Elem: String}}},
		{`rule "x": it has members, but is neither an object nor an array`, []Rule{{Name: "x", Kinds: String, Members: stored}}},
		{`rule "x": it has bounds, but is not an integer`, []Rule{{Name: "x", Kinds: Number, Max: 5}}},
		{`rule "x": its minimum 5 is greater than its maximum 1`, []Rule{{Name: "x", Kinds: Integer, Min: 5, Max: 1}}},
		{`rule "x": members of the elements of an array cannot be stored: there may be many`, []Rule{{Name: "x", Kinds: Array, Members: stored}}},
		{`13 levels of tables, more than 12`, []Rule{{Name: "x", Kinds: Object, Members: deep}}},
		{`1001 rules, more than 1000`, make([]Rule, 1001)},
		{`rule "n064": more than 64 are required or deciding, or noted when absent`, numbered(65, Rule{Deciding: true})},
		{`rule "a-b": another rule has a spelling of this name`, []Rule{{Name: "a_b", AnySpelling: true}, {Name: "a-b", AnySpelling: true}}},
		{`note -1 is negative`, []Rule{{Name: "x", Absent: -1}}},
	} {
		_, err := newTable(c.rules)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, want %q", err, c.want)
		}
	}
}

func TestFindMatchesExactNames(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "ab", "ba", "model", "modem", strings.Repeat("x", maxName)}
	var rules []Rule
	for _, name := range names {
		rules = append(rules, Rule{Name: name})
	}
	table := NewTable(rules...)
	for _, name := range names {
		if r := table.find([]byte(name)); r == nil || r.Name != name {
			t.Errorf("%q is not found", name)
		}
	}
	for _, name := range []string{"", "c", "abc", "Model", "mode", "models", strings.Repeat("x", maxName-1), strings.Repeat("x", maxName+1)} {
		if r := table.find([]byte(name)); r != nil {
			t.Errorf("%q is found as %q", name, r.Name)
		}
	}
}

func TestTextEndsAtTheFirstSpecialByte(t *testing.T) {
	t.Parallel()
	// This tries every byte at every position of a word. The bytes after it are those
	// that a borrow of the subtraction could change, and are longer than every stride.
	for _, filler := range []string{"a", "\"", "\x1f", " ", "!", "\\", "]", "\x7f", "\x80", "é", "\xff"} {
		for at := range 150 {
			for special := range 256 {
				b := []byte(strings.Repeat("a", at) + string([]byte{byte(special)}) + strings.Repeat(filler, 80))
				want := bytes.IndexFunc(b, func(c rune) bool { return c == '"' || c == '\\' || c < ' ' })
				if want < 0 {
					want = len(b)
				}
				for from := range min(want, 3) + 1 {
					high := want
					for n := want - 1; n >= from; n-- {
						if b[n] >= utf8.RuneSelf {
							high = n
						}
					}
					for name, text := range map[string]func([]byte, int) (int, int){"text": text, "byWords": textByWords} {
						got, gotHigh := text(b, from)
						if len(b)-got < stride {
							got, gotHigh = textTail(b, got, gotHigh)
						}
						if got != want || min(gotHigh, want) != high {
							t.Fatalf("%s: %q from %d ends at %d, the first byte outside ASCII is at %d, want %d, %d", name, b, from, got, gotHigh, want, high)
						}
					}
				}
			}
		}
	}
}
