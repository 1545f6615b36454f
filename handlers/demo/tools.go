package demo

import (
	"encoding/json"
	"slices"
)

// maxSchemaDepth bounds how deep arguments are made; below it nothing is
// required any more.
const maxSchemaDepth = 8

// tool is a tool a request brings, in the terms both dialects share.
type tool struct {
	name   string
	schema json.RawMessage
}

// choose returns the tool called name, or the first one when name is empty; nil
// when there is no tool at all. param is where the request names it.
func choose(tools []tool, name, param string) (*tool, error) {
	for i := range tools {
		if name == "" || tools[i].name == name {
			return &tools[i], nil
		}
	}
	if name != "" {
		return nil, invalid(param, "%s: there is no tool %q.", param, name)
	}
	return nil, nil
}

// arguments are sensible arguments of the tool: its required properties.
func (t *tool) arguments() string {
	object, ok := sample(t.schema, 0).(map[string]any)
	if !ok {
		object = map[string]any{} // arguments are an object, whatever the schema says
	}
	return string(encode(object))
}

// schema is the part of JSON Schema from which samples are made.
type schema struct {
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
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// formats are samples of strings that have a format.
var formats = map[string]string{
	"date":      "2026-01-31",
	"time":      "12:00:00Z",
	"date-time": "2026-01-31T12:00:00Z",
	"email":     "someone@example.com",
	"hostname":  "example.com",
	"ipv4":      "192.0.2.1",
	"uri":       "https://example.com/",
	"uuid":      "00000000-0000-4000-8000-000000000000",
}

// sample makes a value that fits the schema, as far as it is understood.
func sample(raw json.RawMessage, depth int) any {
	var s schema
	if json.Unmarshal(raw, &s) != nil {
		return "example"
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Const != nil:
		return s.Const
	case s.Default != nil:
		return s.Default
	}
	if options := slices.Concat(s.AnyOf, s.OneOf); len(options) > 0 && depth < maxSchemaDepth {
		return sample(options[0], depth+1)
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
		return s.object(depth)
	case "array":
		if s.MinItems > 0 && depth < maxSchemaDepth {
			return []any{sample(s.Items, depth+1)}
		}
		return []any{}
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
		if text, ok := formats[s.Format]; ok {
			return text
		}
		return "example"
	}
}

// object makes an object of the required properties.
func (s *schema) object(depth int) map[string]any {
	object := map[string]any{}
	if depth == maxSchemaDepth {
		return object
	}
	for _, name := range s.Required {
		if _, made := object[name]; !made {
			object[name] = sample(s.Properties[name], depth+1)
		}
	}
	return object
}
