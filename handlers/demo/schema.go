package demo

import (
	"cmp"
	"encoding/json"
	"slices"
)

// maxSchemaDepth is the depth up to which values are generated.
const maxSchemaDepth = 16

// answerFormat is the form of an answer that a request asks for: an object with a type and maybe a schema, or a
// string on the endpoints of images and audio.
type answerFormat struct {
	Type       string          `json:"type"` // or the string
	Schema     json.RawMessage `json:"schema"`
	JSONSchema struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"json_schema"` // of chat
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *answerFormat) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &f.Type)
	}
	type object answerFormat
	return json.Unmarshal(data, (*object)(f))
}

// structured returns text in the form that the request asks for: an object that fits its schema, any
// object with the text, or the text itself.
func (q *request) structured(text string) string {
	for _, f := range []answerFormat{q.ResponseFormat, q.Text.Format, q.OutputConfig.Format, q.OutputFormat} {
		switch f.Type {
		case "json_schema":
			return sampleObject(slices.Concat(f.Schema, f.JSONSchema.Schema)) // each dialect sets one of them
		case "json_object":
			return string(encode(object{"answer", text}))
		}
	}
	return text
}

// schema is the supported part of JSON Schema.
type schema struct {
	Ref        string                     `json:"$ref"`
	Type       list                       `json:"type"`
	Format     string                     `json:"format"`
	Enum       []json.RawMessage          `json:"enum"`
	Const      json.RawMessage            `json:"const"`
	Default    json.RawMessage            `json:"default"`
	Minimum    json.Number                `json:"minimum"`
	MinItems   int                        `json:"minItems"`
	Items      json.RawMessage            `json:"items"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	OneOf      []json.RawMessage          `json:"oneOf"`
	AllOf      []json.RawMessage          `json:"allOf"`
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// sampleStrings has a string for each supported `format` of JSON Schema.
var sampleStrings = map[string]string{
	"date":      "2026-01-31",
	"time":      "12:00:00Z",
	"date-time": "2026-01-31T12:00:00Z",
	"email":     "someone@example.com",
	"hostname":  "example.com",
	"ipv4":      "192.0.2.1",
	"uri":       "https://example.com/",
	"uuid":      "00000000-0000-4000-8000-000000000000",
}

// sampler generates values for the schemas of one document.
type sampler struct {
	references map[string]json.RawMessage
	left       int // bytes of schemas that are still read: references could multiply without an end
}

// sampleObject returns an object with the required properties of a schema, as JSON.
func sampleObject(raw json.RawMessage) string {
	var root struct {
		Defs        map[string]json.RawMessage `json:"$defs"`
		Definitions map[string]json.RawMessage `json:"definitions"`
	}
	_ = json.Unmarshal(raw, &root) // without a schema, any object fits
	s := &sampler{references: map[string]json.RawMessage{"#": raw}, left: maxSchemaDepth*len(raw) + maxPieces}
	for name, one := range root.Defs {
		s.references["#/$defs/"+name] = one
	}
	for name, one := range root.Definitions {
		s.references["#/definitions/"+name] = one
	}
	value, ok := s.sample(raw, 0).(map[string]any)
	if !ok {
		value = map[string]any{} // the root must be an object
	}
	return string(encode(value))
}

// sample returns a value that matches the supported part of the schema.
func (p *sampler) sample(raw json.RawMessage, depth int) any {
	var s schema
	if p.left -= len(raw); p.left < 0 || json.Unmarshal(raw, &s) != nil {
		return "example"
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Const != nil:
		return s.Const
	case s.Default != nil:
		return s.Default
	case s.Ref != "":
		s.AllOf = []json.RawMessage{p.references[s.Ref]}
	}
	if options := slices.Concat(s.AllOf, s.AnyOf, s.OneOf); len(options) > 0 && depth < maxSchemaDepth {
		if depth < maxSchemaDepth/2 {
			return p.sample(options[0], depth+1)
		}
		return p.sample(options[len(options)-1], depth+1) // in a recursive schema, null is usually the last one
	}
	kind := ""
	switch {
	case len(s.Type) > 0:
		kind = s.Type[0]
	case s.Properties != nil || depth == 0:
		kind = "object"
	}
	switch kind {
	case "object":
		return p.object(&s, depth)
	case "array":
		items := []any{}
		for len(items) < s.MinItems && depth < maxSchemaDepth && p.left > 0 {
			items = append(items, p.sample(s.Items, depth+1))
			p.left-- // items may have no schema
		}
		return items
	case "integer", "number":
		if s.Minimum != "" {
			return s.Minimum
		}
		return 1
	case "boolean":
		return true
	case "null":
		return nil
	default:
		return cmp.Or(sampleStrings[s.Format], "example")
	}
}

// object returns an object with the required properties.
func (p *sampler) object(s *schema, depth int) map[string]any {
	object := map[string]any{}
	if depth == maxSchemaDepth {
		return object
	}
	for _, name := range s.Required {
		if _, exists := object[name]; !exists {
			object[name] = p.sample(s.Properties[name], depth+1)
		}
	}
	return object
}
