package strictjson

import (
	"maps"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// fieldChecker compares a body with the type into which it was decoded. It finds two things
// that the json package does not report: all members without a field, and nulls in arrays,
// which become zero values.
type fieldChecker struct {
	dec     *jsontext.Decoder
	fields  map[reflect.Type]fields // of the struct types that were needed so far
	unknown []string                // paths of members without a field
	silent  bool                    // unknown is not needed
	fault   *fault.Fault
}

// fields are the types of the fields of a struct, by the names of the members.
type fields map[string]reflect.Type

func newFieldChecker(body []byte) *fieldChecker {
	return &fieldChecker{dec: decoder(body), fields: make(map[reflect.Type]fields)}
}

// value checks the next value, which was decoded into t and has the path p.
func (c *fieldChecker) value(t reflect.Type, p path) {
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

func (c *fieldChecker) object(t reflect.Type, p path) {
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

func (c *fieldChecker) entries(elem reflect.Type, p path) {
	c.token()
	for c.fault == nil && c.dec.PeekKind() == jsontext.KindString {
		c.value(elem, p.member(c.token()))
	}
	c.token()
}

func (c *fieldChecker) array(elem reflect.Type, p path) {
	c.token()
	for n := 0; c.fault == nil && c.dec.PeekKind() != jsontext.KindEndArray; n++ {
		wanted := kindFor(elem)
		if c.dec.PeekKind() == jsontext.KindNull && wanted != anything {
			param := string(p.index(n))
			c.fault = fault.At(fault.InvalidParameter, param, "`%s` must be %s, not null", param, wanted)
			return
		}
		c.value(elem, p.index(n))
	}
	c.token()
}

// token reads the next token, and returns its text if it is a name. An error is not expected,
// because the body was decoded before. If there is one, the body is refused.
func (c *fieldChecker) token() string {
	token, err := c.dec.ReadToken()
	if err != nil {
		c.broken(err)
		return ""
	}
	return token.String()
}

func (c *fieldChecker) skip() {
	if err := c.dec.SkipValue(); err != nil {
		c.broken(err)
	}
}

func (c *fieldChecker) broken(err error) {
	if c.fault == nil {
		c.fault = fault.New(fault.InvalidJSON, "the body cannot be read: %v", err)
	}
}

// fieldsOf returns the fields of the struct t. It does not know tag options that change the
// matching of names: such members are refused.
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
