package demo

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// entry is an item of an input, an output or a conversation: its JSON, and its text as a message.
type entry struct {
	id      string
	whole   any     // its JSON
	message message // without a role if it adds no text
}

// itemPrefixes has the beginning of the ids of items by their type. Other ids begin with `item_`.
var itemPrefixes = map[string]string{
	"message": "msg_", "reasoning": "rs_", "compaction": "cmp_", "function_call": "fc_", "function_call_output": "fco_",
	"custom_tool_call": "ctc_", "custom_tool_call_output": "ctco_", "computer_call": "cu_", "computer_call_output": "cuo_",
}

// readItem reads an item. What its sender left out gets a value: the id, and the status of most types.
func readItem(raw json.RawMessage) (entry, error) {
	var known struct {
		Type    string          `json:"type"` // absent: message
		ID      string          `json:"id"`
		Role    string          `json:"role"`
		Content content         `json:"content"`
		Output  json.RawMessage `json:"output"`
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &known) != nil || json.Unmarshal(raw, &members) != nil || members == nil {
		return entry{}, invalid("input", "input: must be a text or an array of items.")
	}
	known.Type = cmp.Or(known.Type, "message")
	if known.Type == "item_reference" {
		return entry{id: known.ID}, nil
	}
	e := entry{id: known.ID, whole: members}
	if e.id == "" {
		prefix, ok := itemPrefixes[known.Type]
		if !ok {
			prefix = "item_"
		}
		e.id = newID(prefix)
	}
	members["type"], members["id"] = encode(known.Type), encode(e.id)
	if members["status"] == nil && known.Type != "reasoning" && known.Type != "compaction" {
		members["status"] = encode("completed")
	}
	switch {
	case known.Type == "message":
		e.message = message{Role: known.Role, Content: asText(known.Content)}
		if text := ""; json.Unmarshal(members["content"], &text) == nil {
			members["content"] = encode([]object{textPart(known.Role, text)})
		}
	case strings.HasSuffix(known.Type, "_call_output"):
		e.message = message{Role: "tool", Content: asText(block{Result: known.Output}.result())}
	}
	return e, nil
}

// textPart returns the text of a message of this role.
func textPart(role, text string) object {
	if role == "assistant" {
		return outputText(text)
	}
	return object{"type", "input_text", "text", text}
}

// asText returns c with the type `text` in place of `input_text` and `output_text`.
func asText(c content) content {
	c = slices.Clone(c)
	for i := range c {
		if c[i].Type == "input_text" || c[i].Type == "output_text" {
			c[i].Type = "text"
		}
	}
	return c
}

// messagesOf returns the messages of items.
func messagesOf(items []entry) (messages []message) {
	for _, e := range items {
		if e.message.Role != "" {
			messages = append(messages, e.message)
		}
	}
	return messages
}

// maxListed is the maximum number of items in one answer, and defaultListed the number if the request
// names none.
const maxListed, defaultListed = 100, 20

// listItems returns a page of items: at most `limit` items after the item `after`, the newest first unless
// `order` is `asc`.
func listItems(items []entry, query url.Values) (object, error) {
	limit := defaultListed
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxListed {
			return nil, invalid("limit", "limit: must be from 1 to %d.", maxListed)
		}
	}
	items = slices.Clone(items)
	switch query.Get("order") {
	case "asc":
	case "", "desc":
		slices.Reverse(items)
	default:
		return nil, invalid("order", "order: must be asc or desc.")
	}
	if after := query.Get("after"); after != "" {
		at := slices.IndexFunc(items, func(e entry) bool { return e.id == after })
		if at < 0 {
			return nil, invalid("after", "after: there is no item '%s'.", after)
		}
		items = items[at+1:]
	}
	return listOf(items[:min(limit, len(items))], len(items) > limit), nil
}

// listOf returns a list of items.
func listOf(items []entry, more bool) object {
	data, first, last := make([]any, len(items)), any(nil), any(nil)
	for i, e := range items {
		data[i] = e.whole
	}
	if len(items) > 0 {
		first, last = items[0].id, items[len(items)-1].id
	}
	return object{"object", "list", "data", data, "first_id", first, "last_id", last, "has_more", more}
}
