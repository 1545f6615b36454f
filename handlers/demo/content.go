package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// decode reads a request. What is wrong with it is said as a refusal.
func decode(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return invalid(wrong.Field, "%s: a value of kind %s does not fit here.", wrong.Field, wrong.Value)
	}
	return invalid("", "The body is not the JSON object expected here: %v.", err)
}

// content is what a message holds: a string, or an array of blocks.
type content []block

// block is one block of a message, in either dialect: the fields that matter
// here, of all kinds of block.
type block struct {
	Type         string        `json:"type"`
	Text         string        `json:"text"`
	CacheControl *cacheControl `json:"cache_control"`

	// Result is what a tool_result holds. It stays raw, because a type that
	// contains itself would be scanned once more for each level of nesting.
	Result json.RawMessage `json:"content"`
}

// cacheControl asks that the text up to here be kept.
type cacheControl struct {
	TTL string `json:"ttl"` // 5m, also when absent, or 1h
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(data []byte) (err error) {
	*c, err = oneOrMany(data, func(s string) block { return block{Type: "text", Text: s} })
	return err
}

// text is the text of all blocks of text.
func (c content) text() string {
	var texts []string
	for _, b := range c {
		if b.Type == "text" && b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// result is the text of all results of tools in c; found tells whether there
// is one.
func (c content) result() (text string, found bool) {
	var texts []string
	for _, b := range c {
		if b.Type == "tool_result" {
			found = true
			texts = append(texts, b.resultText())
		}
	}
	return strings.Join(texts, "\n"), found
}

// resultText is the text of a tool_result; what is not text is passed over.
func (b block) resultText() string {
	type item struct{ Type, Text string }
	items, err := oneOrMany(b.Result, func(s string) item { return item{"text", s} })
	if err != nil {
		return ""
	}
	var texts []string
	for _, i := range items {
		if i.Type == "text" {
			texts = append(texts, i.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// list is a string or an array of strings.
type list []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *list) UnmarshalJSON(data []byte) (err error) {
	*l, err = oneOrMany(data, func(s string) string { return s })
	return err
}

// oneOrMany decodes what the dialects write either as a string, which one turns
// into an item, or as an array of items. Absent and null are no items.
func oneOrMany[T any](data []byte, one func(string) T) ([]T, error) {
	kind := "object"
	switch first := string(data[:min(1, len(data))]); first {
	case "", "n":
		return nil, nil
	case `"`:
		var s string
		err := json.Unmarshal(data, &s)
		return []T{one(s)}, err
	case "[":
		many := []T{}
		err := json.Unmarshal(data, &many)
		return many, err
	case "t", "f":
		kind = "boolean"
	case "{":
	default:
		kind = "number"
	}
	return nil, &json.UnmarshalTypeError{Value: kind, Type: reflect.TypeFor[[]T]()}
}

// checkStops refuses a stop sequence that every text contains.
func checkStops(param string, stops []string) error {
	for i, s := range stops {
		if s == "" {
			return invalid(fmt.Sprintf("%s.%d", param, i), "%s: a stop sequence must not be empty.", param)
		}
	}
	return nil
}
