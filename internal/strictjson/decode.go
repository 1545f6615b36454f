package strictjson

import (
	"bytes"
	"encoding"
	"errors"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Raw is a value kept as it was written, for a member whose form is somebody
// else's. Its grammar is checked, and that no name in it is given twice.
type Raw = jsontext.Value

// Option changes how Decode treats a body.
type Option func(*decoding)

// Ignored makes Decode let pass members that the destination has no field for,
// and append their paths to list, in the order of the body. A nil list takes
// none.
func Ignored(list *[]string) Option {
	return func(d *decoding) { d.open, d.ignored = true, list }
}

// MaxMembers makes Decode refuse a body whose objects have more than n members
// together, at whatever depth. Each of them costs many times its bytes to decode,
// so that a body that may be large needs this bound beside that of its size.
func MaxMembers(n int) Option {
	return func(d *decoding) { d.members = n }
}

type decoding struct {
	open    bool // members without a field pass
	ignored *[]string
	members int // zero: any number
}

// Decode decodes body, which must be a JSON object, into the struct that into
// points to. It is strict:
//
//   - the grammar is that of [Table.Scan], and halves of surrogate pairs are
//     refused;
//   - names are compared in their exact case, none is given twice, at any
//     depth, and one without a field is refused unless [Ignored] is given;
//   - a string, number, boolean, object or array goes only into a field of that
//     kind, an integer is written as one (neither 5.0 nor 1e2) and fits its
//     field, any other number fits a float;
//   - null leaves a member at its zero value, as if it were absent, and is
//     refused as the element of an array.
//
// Fields are matched by encoding/json's tags; of their options only "omitempty"
// and "omitzero" may be used. A type may decode itself by encoding.TextUnmarshaler or
// the methods of the json package; a [fault.Fault] it returns keeps its code,
// and its message is put after the path: "`amount` must be greater than 0".
//
// What is required, and which values are allowed, is for the caller to say. On
// refusal the content of into means nothing.
func Decode(body []byte, into any, opts ...Option) *fault.Fault {
	var d decoding
	for _, opt := range opts {
		opt(&d)
	}
	// The scan goes first: it bounds the depth of what follows, and gives a
	// broken grammar the same words everywhere.
	if f := noRules.Scan(body, nil); f != nil {
		return f
	}
	if d.members > 0 && moreMembers(body, d.members) {
		return fault.New(fault.InvalidJSON, "the body has more than %d members", d.members)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return refusal(body, err)
	}
	c := newCensus(body)
	c.silent = d.open && d.ignored == nil
	c.value(reflect.TypeOf(into), "")
	switch {
	case c.fault != nil:
		return c.fault
	case d.ignored != nil:
		*d.ignored = append(*d.ignored, c.unknown...)
	case len(c.unknown) > 0:
		return fault.At(fault.InvalidParameter, c.unknown[0], "`%s` is not a parameter", c.unknown[0])
	}
	return nil
}

// moreMembers tells whether body, whose grammar was checked, has more than most
// members: each has one colon outside of strings.
func moreMembers(body []byte, most int) bool {
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case ':':
			if most--; most < 0 {
				return true
			}
		case '"':
			for i++; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return false
}

// decoder reads the tokens of a body that was accepted once, or whose fault is
// already known.
func decoder(body []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// refusal says in our words why the json package refused a body whose grammar
// is right.
func refusal(body []byte, err error) *fault.Fault {
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			param := locate(body, syntactic.JSONPointer)
			return fault.At(fault.InvalidParameter, param, "`%s` is given twice", param)
		}
		// The one demand on the grammar that the scan does not make.
		return fault.New(fault.InvalidJSON, "invalid JSON at byte %d: half of a surrogate pair in a string", syntactic.ByteOffset)
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return fault.New(fault.InvalidParameter, "the body cannot be read: %v", err)
	}
	param := locate(body, semantic.JSONPointer)
	if own, ok := errors.AsType[*fault.Fault](semantic.Err); ok {
		return fault.At(own.Code, param, "`%s` %s", param, own.Message)
	}
	return fault.At(fault.InvalidParameter, param, "`%s` %s", param, complaint(semantic))
}

// complaint says what is wrong with the value that e is about.
func complaint(e *json.SemanticError) string {
	given := kindOf(e.JSONKind)
	wanted := kindInto(e.GoType)
	switch {
	case wanted == Integer && given == Number && bytes.ContainsAny(e.JSONValue, ".eE"):
		return "must be " + wanted.String() + ", not " + Number.instead(wanted)
	case errors.Is(e.Err, strconv.ErrRange), wanted == Integer && errors.Is(e.Err, strconv.ErrSyntax):
		return "is out of range" // the syntax error is a sign where there is none
	case given != 0 && wanted&given == 0:
		return "must be " + wanted.String() + ", not " + given.String()
	case e.Err != nil:
		return "is refused: " + e.Err.Error()
	}
	return "must be " + wanted.String()
}

// kindOf is the Kind for what jsontext calls one.
func kindOf(k jsontext.Kind) Kind {
	if k == jsontext.KindEndObject || k == jsontext.KindEndArray {
		return 0
	}
	return begins[byte(k)]
}

var (
	jsonUnmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	jsonUnmarshalerFrom = reflect.TypeFor[json.UnmarshalerFrom]()
	textUnmarshaler     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodesItself tells whether t has a method that decodes it, so that its form
// is not that of its fields.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonUnmarshaler) || p.Implements(jsonUnmarshalerFrom) || p.Implements(textUnmarshaler)
}

// kindInto is the kind of value that may go into a field of the type t.
func kindInto(t reflect.Type) Kind {
	if t == nil {
		return anything
	}
	switch p := reflect.PointerTo(t); {
	case p.Implements(jsonUnmarshaler), p.Implements(jsonUnmarshalerFrom):
		return anything
	case p.Implements(textUnmarshaler):
		return String
	}
	switch t.Kind() {
	case reflect.Bool:
		return Bool
	case reflect.String:
		return String
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Integer
	case reflect.Float32, reflect.Float64:
		return Number
	case reflect.Struct, reflect.Map:
		return Object
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return String // Base64
		}
		return Array
	case reflect.Pointer:
		return kindInto(t.Elem())
	}
	return anything
}

// locate writes the place that pointer names in body as a path. The pointer
// alone does not tell an element from a member whose name is a number.
func locate(body []byte, pointer jsontext.Pointer) string {
	dec := decoder(body)
	var p path
	for token := range pointer.Tokens() {
		open, err := dec.ReadToken()
		if err != nil {
			break
		}
		if open.Kind() == jsontext.KindBeginArray {
			n, _ := strconv.Atoi(token)
			p = p.index(n)
			for range n {
				_ = dec.SkipValue() // it was read before
			}
			continue
		}
		p = p.member(token)
		for dec.PeekKind() == jsontext.KindString {
			name, err := dec.ReadToken()
			if err != nil || name.String() == token {
				break
			}
			_ = dec.SkipValue()
		}
	}
	return string(p)
}
