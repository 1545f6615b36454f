package catalog

import (
	"strings"
	"testing"
)

func TestAPatternIsAnExactNameOrAPrefix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, model string
		match          bool
	}{
		{"claude-1", "claude-1", true},
		{"claude-1", "claude-10", false},
		{"claude-1", "Claude-1", false},
		{"claude-1", "claude-", false},
		{"claude-*", "claude-1", true},
		{"claude-*", "claude-", true},
		{"claude-*", "claude", false},
		{"claude-*", "xclaude-1", false},
		{"*", "anything", true},
		{"*", "", true},
		{"org/*", "org/model", true},
		{"a[b]?", "a[b]?", true}, // no other character has a meaning
		{"a[b]?", "ab", false},
		{"plain-*", "plain-a,expensive-1", false},
		{"plain-*", "plain-a:online", false},
		{"plain-*", "plain-a/../expensive-1", false},
		{"plain-*", "plain-a/..", false},
		{"plain-a/.*", "plain-a/../expensive-1", false},
		{"plain-*", "plain-a/%2e%2e/expensive-1", false},
		{"plain-*", `plain-a\..\expensive-1`, false},
		{"plain-*", "plain-a..b/c", true},
		{"plain-*", "plain-a@1.5/b", true},
		{"plain:*", "plain:7b", true},
		{"plain:*", "plain:7b:online", true},
		{"plain:*", "plain:7b,expensive-1", false},
		{"*", "plain-a:online", false},
		{"plain-a:online", "plain-a:online", true},
		{"a,b*", "a,b-1", true},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(c.model); got != c.match {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.model, got, c.match)
		}
		if p.Exact() == strings.HasSuffix(c.pattern, "*") {
			t.Errorf("Exact of %q is %v", c.pattern, p.Exact())
		}
	}
}

func TestAPatternBarsAmbiguousNames(t *testing.T) {
	t.Parallel()
	for model, bars := range map[string]bool{"plain-a": false, "plain-a:online": true, "other:online": false, "plain-a,b": true} {
		if got := Pattern("plain-*").Bars(model); got != bars {
			t.Errorf("Bars(%q) is %v, want %v", model, got, bars)
		}
	}
	if Pattern("a:b").Bars("a:b") || Pattern("a").Bars("a:b") {
		t.Error("an exact name bars another name")
	}
}

func TestInvalidPatternsAreRefused(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "*x", "a*b", "**", "a**", "two words", "tab\t", "new\nline", "nul\x00", "ümlaut", "del\x7f", strings.Repeat("a", 257)} {
		if p, err := ParsePattern(word); err == nil {
			t.Errorf("%q was accepted as %q", word, p)
		}
	}
	if _, err := ParsePattern(strings.Repeat("a", 256)); err != nil {
		t.Errorf("the maximum length was refused: %v", err)
	}
}

func TestDuplicatePatternsAreRefused(t *testing.T) {
	t.Parallel()
	ps, err := ParsePatterns([]string{"a", "b-*"})
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]bool{"a": true, "b-1": true, "b": false, "c": false} {
		if got := ps.Match(model); got != want {
			t.Errorf("%q: %v, want %v", model, got, want)
		}
	}
	if _, err := ParsePatterns([]string{"a", "b", "a"}); err == nil || !strings.Contains(err.Error(), `"a" is given twice`) {
		t.Errorf("a duplicate: the error is %v", err)
	}
	if _, err := ParsePatterns([]string{"a", "*b"}); err == nil {
		t.Error("an invalid pattern was accepted")
	}
	if (Patterns{}).Match("a") {
		t.Error("an empty set matches a name")
	}
}
