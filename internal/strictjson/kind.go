package strictjson

import "strings"

// Kind is a set of kinds of JSON values. A value that was found has exactly
// one of them; the zero Kind is that of a value that is absent.
type Kind uint8

// The kinds. A number is an Integer when it is written as one: digits, with no
// fraction and no exponent. 5.0 and 1e2 are therefore a Number and not an
// Integer: readers differ on them (Go refuses, Python and JavaScript accept),
// and what decides a price must not depend on who reads it.
const (
	String Kind = 1 << iota
	Number
	Integer
	Bool
	Object
	Array
	Null

	anything = String | Number | Integer | Bool | Object | Array | Null
)

// words names each kind, alone and as elements of an array.
var words = []struct {
	kind     Kind
	one, all string
}{
	{String, "a string", "strings"},
	{Number, "a number", "numbers"},
	{Integer, "an integer", "integers"},
	{Bool, "a boolean", "booleans"},
	{Object, "an object", "objects"},
	{Array, "an array", "arrays"},
	{Null, "null", "nulls"},
}

// String lists the kinds of k for a person: "a string or an array".
func (k Kind) String() string { return k.describe(0) }

// describe lists the kinds of k, and after "an array" those of its elements:
// "a string or an array of strings". Elements of any kind are not mentioned.
func (k Kind) describe(elem Kind) string {
	var list []string
	for _, w := range words {
		switch {
		case k&w.kind == 0, w.kind == Integer && k&Number != 0: // a number may be an integer
		case w.kind == Array && elem != 0 && elem != anything:
			list = append(list, w.one+" of "+elem.plural())
		default:
			list = append(list, w.one)
		}
	}
	return disjunction(list)
}

func (k Kind) plural() string {
	var list []string
	for _, w := range words {
		if k&w.kind != 0 {
			list = append(list, w.all)
		}
	}
	return disjunction(list)
}

// disjunction joins words as in "a, b or c".
func disjunction(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	last := len(list) - 1
	if last == 0 {
		return list[0]
	}
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// instead names the kind of a value that was given where only the kinds of
// allowed may stand.
func (k Kind) instead(allowed Kind) string {
	switch {
	case k == Number && allowed&Integer != 0:
		return "a number with a fraction or an exponent"
	case k == Integer:
		return Number.String()
	}
	return k.String()
}
