package demo

import "encoding/json"

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
