// Package catalog knows models by their name patterns: their families, prices
// and estimates. A [Pattern] matches names; the other types map a name to the
// family that says which options a model has, to the [Price] of a call or task,
// and to the greatest amount that a call can cost before it begins. The package
// computes, and stores nothing.
package catalog

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Pattern names models: an exact name, or a prefix followed by one "*", which
// stands for any characters but those that [Pattern.Bars] lists.
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

// CheckName checks the model name of a call. param is its path in the body. A
// name has 1 to 256 bytes of printable characters and no space at its ends; the
// only space inside is U+0020. Names that differ only in invisible characters
// could be priced by one pattern and served as another model.
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

// ParsePatterns parses each of words and returns an error for a duplicate.
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

// Exact reports whether p matches one name only.
func (p Pattern) Exact() bool { return !strings.HasSuffix(string(p), "*") }

// Match reports whether p names model.
func (p Pattern) Match(model string) bool {
	if prefix, ok := strings.CutSuffix(string(p), "*"); ok {
		return strings.HasPrefix(model, prefix) && !isAmbiguous(prefix, model)
	}
	return string(p) == model
}

// Bars reports whether model begins with the prefix of p, and p does not match it
// because of what follows. Routers and URLs read a list, a variant or a path out
// of such a name, and serve another model than the prefix names. So the "*" of a
// pattern does not stand for:
//
//   - a comma, a percent sign or a backslash;
//   - a colon, unless the prefix has one;
//   - a segment ".." of the name.
func (p Pattern) Bars(model string) bool {
	prefix, ok := strings.CutSuffix(string(p), "*")
	return ok && strings.HasPrefix(model, prefix) && isAmbiguous(prefix, model)
}

// isAmbiguous reports whether a router may read another model out of the name
// model, which begins with prefix.
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
