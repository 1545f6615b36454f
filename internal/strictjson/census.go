package strictjson

import (
	"maps"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// census walks a body that was decoded into a type, side by side with the type,
// for the two things the json package passes in silence: members without a
// field, of which it would name only the first, and nulls in arrays, which it
// turns into zero values that nobody sent.
type census struct {
	dec     *jsontext.Decoder
	fields  map[reflect.Type]fields // of the structs met so far
	unknown []string                // paths of members without a field
	silent  bool                    // nobody asks for unknown
	fault   *fault.Fault
}

// fields are the names of the members of a struct and the types they go into.
type fields map[string]reflect.Type

func newCensus(body []byte) *census {
	return &census{dec: decoder(body), fields: make(map[reflect.Type]fields)}
}

// value walks the next value, which was decoded into t and stands at p.
func (c *census) value(t reflect.Type, p path) {
	for t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	kind := c.dec.PeekKind()
	switch {
	case decodesItself(t):
		c.skip()
	case kind == jsontext.KindBeginObject && t.Kind() == reflect.Struct:
		c.object(t, p)
	case kind == jsontext.KindBeginObject && t.Kind() == reflect.Map:
		c.entries(t.Elem(), p)
	case kind == jsontext.KindBeginArray && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		c.array(t.Elem(), p)
	default:
		c.skip()
	}
}

func (c *census) object(t reflect.Type, p path) {
	known, ok := c.fields[t]
	if !ok {
		known = fieldsOf(t)
		c.fields[t] = known
	}
	c.token()
	for c.fault == nil && c.dec.PeekKind() == jsontext.KindString {
		name := c.token()
		if field, ok := known[name]; ok {
			c.value(field, p.member(name))
		} else {
			if !c.silent {
				c.unknown = append(c.unknown, string(p.member(name)))
			}
			c.skip()
		}
	}
	c.token()
}

func (c *census) entries(elem reflect.Type, p path) {
	c.token()
	for c.fault == nil && c.dec.PeekKind() == jsontext.KindString {
		c.value(elem, p.member(c.token()))
	}
	c.token()
}

func (c *census) array(elem reflect.Type, p path) {
	c.token()
	for n := 0; c.fault == nil && c.dec.PeekKind() != jsontext.KindEndArray; n++ {
		wanted := kindInto(elem)
		if c.dec.PeekKind() == jsontext.KindNull && wanted != anything {
			param := string(p.index(n))
			c.fault = fault.At(fault.InvalidParameter, param, "`%s` must be %s, not null", param, wanted)
			return
		}
		c.value(elem, p.index(n))
	}
	c.token()
}

// token reads the next token; of a name, its text. What was decoded before
// cannot fail to be read; if it did, the body must not pass.
func (c *census) token() string {
	token, err := c.dec.ReadToken()
	if err != nil {
		c.broken(err)
		return ""
	}
	return token.String()
}

func (c *census) skip() {
	if err := c.dec.SkipValue(); err != nil {
		c.broken(err)
	}
}

func (c *census) broken(err error) {
	if c.fault == nil {
		c.fault = fault.New(fault.InvalidJSON, "the body cannot be read: %v", err)
	}
}

// fieldsOf reads the fields of the struct t. Tag options that change which names
// match, or where they go, are unknown here, so that their members are refused.
func fieldsOf(t reflect.Type) fields {
	known := make(fields)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			maps.Copy(known, fieldsOf(f.Type))
		case name == "-" || !f.IsExported():
		case name == "":
			known[f.Name] = f.Type
		default:
			known[name] = f.Type
		}
	}
	return known
}
