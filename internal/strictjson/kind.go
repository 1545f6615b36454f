package strictjson

import "strings"

// Kind is a set of kinds of JSON values. A value has exactly one kind. The zero Kind is that
// of an absent value.
type Kind uint8

// The kinds. A number is an Integer if it is written as one: digits, without fraction and
// exponent. 5.0 and 1e2 are a Number and not an Integer, because a price must not depend on
// the parser. For an integer, Go refuses them, Python and JavaScript accept them.
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

// kindNames are the names of the kinds, for one value and for elements of an array.
var kindNames = []struct {
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

// String lists the kinds of k for an error text: "a string or an array".
func (k Kind) String() string { return k.describe(0) }

// describe lists the kinds of k, and after "an array" those of its elements: "a string or an
// array of strings". It leaves out elements that may have any kind.
func (k Kind) describe(elem Kind) string {
	var list []string
	for _, w := range kindNames {
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
	for _, w := range kindNames {
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

// describeGiven returns the name of the kind of a value, where only allowed may be given.
func (k Kind) describeGiven(allowed Kind) string {
	switch {
	case k == Number && allowed&Integer != 0:
		return "a number with a fraction or an exponent"
	case k == Integer:
		return Number.String()
	}
	return k.String()
}
