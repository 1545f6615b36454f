package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Models maps generation models to values, by name with or without the prefix of
// the kind: `video-wan-2.2` is `wan-2.2` for videos. A pattern that begins with
// `video-` or `image-` matches models of that kind; any other pattern matches
// the rest of the name for both kinds. An exact name takes precedence over a
// prefix, a longer prefix over a shorter one, and one kind over both. The zero
// value is empty and ready to use.
type Models[T any] struct {
	entries []entry[T] // in order of precedence
}

// entry is one pattern without the prefix of its kind.
type entry[T any] struct {
	kind    Kind // empty: both
	pattern Pattern
	value   T
}

// Add adds the value of a pattern. If there is already a value for the same
// models, Add returns that value and false.
func (m *Models[T]) Add(p Pattern, value T) (before T, ok bool) {
	e := entry[T]{pattern: p, value: value}
	e.kind, e.pattern = split(p)
	i, _ := slices.BinarySearchFunc(m.entries, e, func(a, b entry[T]) int { return a.compare(b) })
	if i < len(m.entries) && m.entries[i].kind == e.kind && m.entries[i].pattern == e.pattern {
		return m.entries[i].value, false
	}
	m.entries = slices.Insert(m.entries, i, e)
	return before, true
}

// split separates the prefix of the kind from a pattern. Without such a prefix, the kind is empty.
func split(p Pattern) (Kind, Pattern) {
	for _, kind := range []Kind{Video, Image} {
		if rest, ok := strings.CutPrefix(string(p), string(kind)+"-"); ok {
			return kind, Pattern(rest)
		}
	}
	return "", p
}

// compare orders entries by precedence.
func (e entry[T]) compare(o entry[T]) int {
	return cmp.Or(
		compareBool(e.pattern.Exact(), o.pattern.Exact()),
		cmp.Compare(len(o.pattern), len(e.pattern)),
		compareBool(e.kind != "", o.kind != ""),
		cmp.Compare(e.pattern, o.pattern),
		cmp.Compare(e.kind, o.kind),
	)
}

// Find returns the value of a model of a kind, or false if there is none.
func (m *Models[T]) Find(kind Kind, model string) (value T, ok bool) {
	name := bareName(kind, model)
	for _, e := range m.entries {
		if (e.kind == "" || e.kind == kind) && e.pattern.Match(name) {
			return e.value, true
		}
	}
	return value, false
}

// Bars reports whether a pattern of that kind bars the model; see [Pattern.Bars].
func (m *Models[T]) Bars(kind Kind, model string) bool {
	name := bareName(kind, model)
	return slices.ContainsFunc(m.entries, func(e entry[T]) bool {
		return (e.kind == "" || e.kind == kind) && e.pattern.Bars(name)
	})
}

// bareName returns the name of a model without the prefix of its kind.
func bareName(kind Kind, model string) string { return strings.TrimPrefix(model, string(kind)+"-") }

// Len returns the number of patterns.
func (m *Models[T]) Len() int { return len(m.entries) }

// Kind is what a model generates.
type Kind string

// The kinds. Each is the prefix of its models' names.
const (
	Video Kind = "video"
	Image Kind = "image"
)

// maxModel is the maximum length of a model's name in bytes. All of its
// characters are ASCII.
const maxModel = 256

// CheckModel returns INVALID_MODEL unless a name has the form video-{model_name}-{version}, or
// image-{model_name}-{version} for images. A name may have more parts. Parts consist of letters,
// digits, dots and underscores.
func CheckModel(kind Kind, model string) *fault.Fault {
	name, ok := strings.CutPrefix(model, string(kind)+"-")
	if !ok || len(model) > maxModel || !strings.Contains(name, "-") {
		return invalidModel(kind)
	}
	for part := range strings.SplitSeq(name, "-") {
		if part == "" || strings.ContainsFunc(part, notInNames) {
			return invalidModel(kind)
		}
	}
	return nil
}

func notInNames(r rune) bool {
	letter, digit := 'a' <= r|0x20 && r|0x20 <= 'z', '0' <= r && r <= '9'
	return !letter && !digit && r != '.' && r != '_'
}

func invalidModel(kind Kind) *fault.Fault {
	return fault.At(fault.InvalidModel, "model",
		"`model` must have the form %s-{model_name}-{version} here, in letters, digits, `.` and `_`", kind)
}
