package usage

import "bytes"

// items are the content blocks of a message, or the elements of the output of a response
// (POST /v1/responses). It keeps only the uses of tools that the backend runs.
type items struct {
	item               // the element that is being read
	response bool      // the answer is a response
	ended    []ToolUse // uses in blocks that ended, or in events that end elements; at most maxTools
	listed   []ToolUse // uses in the last list of elements; at most maxTools
}

// item is one element.
type item struct {
	tool  Name // the tool of the backend that ran; empty: none
	other bool // the tool did something other than a search, such as opening a page
}

// isResponse reports whether the answer is a response.
func (r *report) isResponse() bool { return r.items != nil && r.items.response }

// itemsOf returns the items of the answer. It never returns nil.
func (r *report) itemsOf() *items {
	if r.items == nil {
		r.items = new(items)
	}
	return r.items
}

// open begins a list of items. If element is set, it begins an item of the current list. A new list
// replaces the previous one.
func (i *items) open(element bool) {
	i.item, i.response = item{}, true
	if !element {
		i.listed = nil
	}
}

// count adds the item to list if the backend ran a tool. A web_search counts only if it was a search,
// because the vendor bills no other actions, but reports each of them as an item.
func (i *items) count(list *[]ToolUse) {
	if i.tool.n > 0 && (!i.other || string(i.tool.bytes()) != "web_search") {
		if use := useOf(list, i.tool.bytes(), true); use != nil {
			use.Uses++
		}
	}
	i.item = item{}
}

// callSuffix is the suffix of the types of items that are uses of a tool.
const callSuffix = "_call"

// begin sets the type of the item. unseen is set if the item may have a cost that its text does not
// show. This is the case for all types except messages and calls of the caller's functions.
func (i *item) begin(kind []byte) (unseen bool) {
	switch string(kind) {
	case "message", "function_call", "custom_tool_call":
		return false
	case "computer_call", "local_shell_call", "apply_patch_call", "tool_search_call": // the caller runs them
		return true
	}
	if name, ok := bytes.CutSuffix(kind, []byte(callSuffix)); ok {
		i.tool.set(name)
	}
	return true
}
