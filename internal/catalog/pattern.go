// Package catalog maps the names of models to what is known about them.
package catalog

import (
	"fmt"
	"strings"
)

// Pattern names models: an exact name, or a prefix followed by one "*".
type Pattern string

// ParsePattern checks that s is a pattern: not empty, at most 256 bytes of
// printable ASCII, and a "*" only as its last character.
func ParsePattern(s string) (Pattern, error) {
	if s == "" || len(s) > 256 {
		return "", fmt.Errorf("a model pattern has 1 to 256 characters, this has %d", len(s))
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return "", fmt.Errorf("model pattern %q: only printable ASCII without spaces is allowed", s)
		}
		if s[i] == '*' && i != len(s)-1 {
			return "", fmt.Errorf("model pattern %q: \"*\" is allowed only at the end", s)
		}
	}
	return Pattern(s), nil
}

// ParsePatterns parses each of words and refuses one that is there twice.
func ParsePatterns(words []string) (Patterns, error) {
	patterns := make(Patterns, 0, len(words))
	seen := make(map[Pattern]bool, len(words))
	for _, word := range words {
		p, err := ParsePattern(word)
		if err != nil {
			return nil, err
		}
		if seen[p] {
			return nil, fmt.Errorf("model pattern %q is there twice", word)
		}
		seen[p] = true
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// Exact tells whether p names one model.
func (p Pattern) Exact() bool { return !strings.HasSuffix(string(p), "*") }

// Match tells whether p names model.
func (p Pattern) Match(model string) bool {
	if prefix, ok := strings.CutSuffix(string(p), "*"); ok {
		return strings.HasPrefix(model, prefix)
	}
	return string(p) == model
}

// Patterns is a set of patterns without order.
type Patterns []Pattern

// Match tells whether one of ps names model.
func (ps Patterns) Match(model string) bool {
	for _, p := range ps {
		if p.Match(model) {
			return true
		}
	}
	return false
}
