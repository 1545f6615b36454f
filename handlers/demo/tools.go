package demo

import (
	"encoding/json"
	"slices"
)

// maxSchemaDepth is the depth up to which arguments are generated.
const maxSchemaDepth = 8

// toolRequest is a tool in a request. In chat, its fields are in function.
type toolRequest struct {
	Type         string          `json:"type"`
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"` // absent: the vendor runs the tool
	Parameters   json.RawMessage `json:"parameters"`   // of responses
	CacheControl *cacheControl   `json:"cache_control"`
	Function     struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// toolChoice is a string, or an object that may name a tool.
type toolChoice struct {
	Type     string `json:"type"` // or the string
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *toolChoice) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &c.Type)
	}
	type object toolChoice
	return json.Unmarshal(data, (*object)(c))
}

// tool is a tool that can be called.
type tool struct {
	name   string
	schema json.RawMessage
}

// tool returns the requested tool, by default the first one; nil if no tool is
// called.
func (q *request) tool() (*tool, error) {
	name := q.ToolChoice.Function.Name
	if q.ToolChoice.Type == "tool" {
		name = q.ToolChoice.Name
	}
	for _, t := range q.Tools {
		found := tool{t.Name, t.InputSchema}
		if t.Type == "function" {
			found = tool{t.Function.Name, t.Function.Parameters}
		} else if t.InputSchema == nil {
			continue
		}
		if name == "" || found.name == name {
			if q.ToolChoice.Type == "none" {
				return nil, nil
			}
			return &found, nil
		}
	}
	if name != "" {
		return nil, invalid("tool_choice.name", "tool_choice.name: there is no tool %q.", name)
	}
	return nil, nil
}

// arguments returns arguments for the required properties of the tool.
func (t *tool) arguments() string {
	object, ok := sample(t.schema, 0).(map[string]any)
	if !ok {
		object = map[string]any{} // arguments must be an object
	}
	return string(encode(object))
}

// schema is the supported part of JSON Schema.
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

// formats has a sample string for each format.
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

// sample returns a value that matches the supported part of the schema.
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

// object returns an object with the required properties.
func (s *schema) object(depth int) map[string]any {
	object := map[string]any{}
	if depth == maxSchemaDepth {
		return object
	}
	for _, name := range s.Required {
		if _, exists := object[name]; !exists {
			object[name] = sample(s.Properties[name], depth+1)
		}
	}
	return object
}
