// Package catalog has the families and the prices of models, by patterns of their names. A [Pattern]
// matches names. [Families] maps a name to the options of a model, and [Prices] to its [Price]. The
// package computes the amount to reserve for a call or a task, and its charge. It stores nothing.
// The table of families is in family_table.go, what a configuration changes of them in
// family_override.go, the prices in price*.go.
package catalog

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Pattern names models: an exact name, or a prefix followed by "*". The "*" stands for any characters
// except those that [Pattern.Bars] lists.
type Pattern string

// ParsePattern returns an error unless s is a pattern: 1 to 256 bytes of printable ASCII, with a "*"
// only as the last character.
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

// CheckName checks the model name of a call. param is its path in the body. A name has 1 to 256 bytes
// of printable characters and no space at its ends; the only space inside is U+0020. With invisible
// characters, a name could have the price of one model and be served as another.
func CheckName(param, name string) *fault.Fault {
	switch {
	case name == "" || len(name) > maxModel:
		return fault.At(fault.InvalidParameter, param, "the name of a model has 1 to %d bytes, this has %d", maxModel, len(name))
	case name[0] == ' ' || name[len(name)-1] == ' ':
		return fault.At(fault.InvalidParameter, param, "the name of a model does not begin or end with a space")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fault.At(fault.InvalidParameter, param, "the name of a model consists of printable characters: %+q is not printable", r)
		}
	}
	return nil
}

// ParsePatterns parses all words as patterns. It returns an error for a duplicate.
func ParsePatterns(words []string) (Patterns, error) {
	patterns := make(Patterns, 0, len(words))
	seen := make(map[Pattern]bool, len(words))
	for _, word := range words {
		p, err := ParsePattern(word)
		if err != nil {
			return nil, err
		}
		if seen[p] {
			return nil, fmt.Errorf("model pattern %q is given twice", word)
		}
		seen[p] = true
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// Exact reports whether p matches one name only.
func (p Pattern) Exact() bool { return !strings.HasSuffix(string(p), "*") }

// Match reports whether p names model.
func (p Pattern) Match(model string) bool {
	if prefix, ok := strings.CutSuffix(string(p), "*"); ok {
		return strings.HasPrefix(model, prefix) && !isAmbiguous(prefix, model)
	}
	return string(p) == model
}

// Bars reports whether model begins with the prefix of p, but p does not match because of the rest of
// the name. Routers may interpret such a name as a list, a variant or a path, and serve another model
// than the prefix names. So the "*" of a pattern does not stand for:
//
//   - a comma, a percent sign or a backslash;
//   - a colon, unless the prefix has one;
//   - a segment ".." of the name.
func (p Pattern) Bars(model string) bool {
	prefix, ok := strings.CutSuffix(string(p), "*")
	return ok && strings.HasPrefix(model, prefix) && isAmbiguous(prefix, model)
}

// isAmbiguous reports whether a router may serve another model for the name model, which begins with
// prefix.
func isAmbiguous(prefix, model string) bool {
	dots := false
	for i := len(prefix); i < len(model); i++ {
		switch model[i] {
		case ',', '%', '\\':
			return true
		case ':':
			if strings.IndexByte(prefix, ':') < 0 {
				return true
			}
		case '.':
			dots = dots || i > 0 && model[i-1] == '.'
		}
	}
	return dots && strings.Contains("/"+model+"/", "/../")
}

// Patterns is a set of patterns without order.
type Patterns []Pattern

// Match reports whether one of ps matches model.
func (ps Patterns) Match(model string) bool {
	for _, p := range ps {
		if p.Match(model) {
			return true
		}
	}
	return false
}
