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

// Raw is a value as it was written, for a member whose form is defined elsewhere. Decode
// checks its grammar, and refuses a name that is given twice.
type Raw = jsontext.Value

// Option is an option of Decode.
type Option func(*decoding)

// Ignored makes Decode ignore members without a field in the destination, and append their
// paths to list, in the order of the body, unless list is nil.
func Ignored(list *[]string) Option {
	return func(d *decoding) { d.open, d.ignored = true, list }
}

// MaxMembers makes Decode refuse a body with more than n members at all depths together. A
// decoded member needs many times the memory of its bytes. So a body that may be large needs
// this limit in addition to the one on its size.
func MaxMembers(n int) Option {
	return func(d *decoding) { d.members = n }
}

type decoding struct {
	open    bool // members without a field are ignored
	ignored *[]string
	members int // zero: any number
}

// Decode decodes body, which must be a JSON object, into the struct that into
// points to. It is strict:
//
//   - the grammar is that of [Table.Scan], and half of a surrogate pair is refused;
//   - names are case-sensitive, a repeated name is refused at any depth, and a name
//     without a field is refused unless [Ignored] is given;
//   - a value must have the kind of its field; an integer must be written as one
//     (neither 5.0 nor 1e2) and fit its field; any other number must fit a float;
//   - a member that is null counts as absent; an element of an array must not be null.
//
// Fields are matched by encoding/json's tags; the only tag options that may be used are
// "omitempty" and "omitzero". A type may decode itself by encoding.TextUnmarshaler or
// the methods of the json package. If it returns a [fault.Fault], the code is kept and
// the message follows the path: "`amount` must be greater than 0".
//
// The caller checks which members are required and which values are allowed. After an error
// the content of into is undefined.
func Decode(body []byte, into any, opts ...Option) *fault.Fault {
	var d decoding
	for _, opt := range opts {
		opt(&d)
	}
	// The scan runs first: it limits the depth, and reports the same syntax errors for all
	// bodies.
	if f := noRules.Scan(body, nil); f != nil {
		return f
	}
	if d.members > 0 && hasMoreMembers(body, d.members) {
		return fault.New(fault.InvalidJSON, "the body has more than %d members", d.members)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return refusal(body, err)
	}
	c := newFieldChecker(body)
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

// hasMoreMembers reports whether body, whose grammar was checked, has more than limit members.
// Each member has one colon outside of strings.
func hasMoreMembers(body []byte, limit int) bool {
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case ':':
			if limit--; limit < 0 {
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

// decoder returns a decoder for a body that was checked before, or whose error is known.
func decoder(body []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// refusal converts an error of the json package about a body whose grammar was checked.
func refusal(body []byte, err error) *fault.Fault {
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			param := locate(body, syntactic.JSONPointer)
			return fault.At(fault.InvalidParameter, param, "`%s` is given twice", param)
		}
		// The only rule of the grammar that the scan does not check.
		return fault.New(fault.InvalidJSON, "invalid JSON at byte %d: half of a surrogate pair in a string", syntactic.ByteOffset)
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return fault.New(fault.InvalidParameter, "the body cannot be read: %v", err)
	}
	param := locate(body, semantic.JSONPointer)
	if f, ok := errors.AsType[*fault.Fault](semantic.Err); ok {
		return fault.At(f.Code, param, "`%s` %s", param, f.Message)
	}
	return fault.At(fault.InvalidParameter, param, "`%s` %s", param, describeError(semantic))
}

// describeError returns what is wrong with the value of e.
func describeError(e *json.SemanticError) string {
	given := kindOf(e.JSONKind)
	wanted := kindFor(e.GoType)
	switch {
	case wanted == Integer && given == Number && bytes.ContainsAny(e.JSONValue, ".eE"):
		return "must be " + wanted.String() + ", not " + Number.describeGiven(wanted)
	case errors.Is(e.Err, strconv.ErrRange), wanted == Integer && errors.Is(e.Err, strconv.ErrSyntax):
		return "is out of range" // the syntax error is a minus sign for an unsigned field
	case given != 0 && wanted&given == 0:
		return "must be " + wanted.String() + ", not " + given.String()
	case e.Err != nil:
		return "is refused: " + e.Err.Error()
	}
	return "must be " + wanted.String()
}

// kindOf converts a kind of jsontext.
func kindOf(k jsontext.Kind) Kind {
	if k == jsontext.KindEndObject || k == jsontext.KindEndArray {
		return 0
	}
	return kindByFirstByte[byte(k)]
}

var (
	jsonUnmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	jsonUnmarshalerFrom = reflect.TypeFor[json.UnmarshalerFrom]()
	textUnmarshaler     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodesItself reports whether t has a method that decodes it, so that its fields do not
// define its form.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonUnmarshaler) || p.Implements(jsonUnmarshalerFrom) || p.Implements(textUnmarshaler)
}

// kindFor returns the kinds of values that a field of the type t accepts.
func kindFor(t reflect.Type) Kind {
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
		return kindFor(t.Elem())
	}
	return anything
}

// locate returns the path of a pointer into body. The pointer alone does not distinguish an
// element from a member whose name is a number.
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
