package modelcall

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// The members of POST /v1/responses and of the routes below it; see
// docs/reference/calls.md#responses.
var responsesMembers = bodyTable(append(each(rule{}, "include", "text", "truncation", "client_metadata"),
	modelMember,
	streamMember,
	rule{Name: "input", Kinds: text | array | null, Elem: object, Deciding: true, Members: itemTable},
	promptTemplate,
	rule{Name: "instructions", Kinds: text},
	rule{Name: "store", Slot: slotStore},
	rule{Name: "max_output_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxTokens},
	outputBound("max_tokens"),
	outputBound("max_completion_tokens"),
	multiplier("n"),
	multiplier("best_of"),
	rule{Name: "max_tool_calls", Kinds: integer, Min: 1, Max: maxCount, Deciding: true, Note: noteMaxToolCalls},
	rule{Name: "messages", Note: noteUnknown, Members: tableWithState(chatContent, rule{Name: "tools", Members: chatTools})},
	rule{Name: "temperature", Kinds: number},
	rule{Name: "top_p", Kinds: number},
	toolsMember(responsesTools(noteUntypedTool)),
)...)

// responsesTools returns toolTable for the tools of POST /v1/responses.
func responsesTools(untyped int, rules ...rule) *strictjson.Table {
	return toolTable(untyped, append(slices.Concat(rules, each(rule{}, responsesToolMembers...)),
		rule{Name: "container", AnySpelling: true, Note: noteContainer, Members: tableWithState(stateMember("id"))},
		rule{Name: "max_uses", Note: noteUnknownInTool}, // of /v1/messages: no bound here
	)...)
}

// responsesToolMembers are the members of the tools of POST /v1/responses that knownToolMembers does
// not have. The price of a tool does not depend on them.
var responsesToolMembers = []string{
	"filters", "search_context_size", "search_content_types", "external_web_access", "max_num_results", "ranking_options",
	"server_label", "server_url", "server_description", "authorization", "headers", "require_approval", "allowed_tools",
	"background", "size", "quality", "partial_images", "input_fidelity", "moderation", "output_format", "output_compression", "action",
	"display_width", "display_height",
}

// itemTypes are the known types of items. itemTable has rules for their members with media.
var itemTypes = []string{
	"message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
	"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call", "computer_call_output",
	"local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
	"mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response", "tool_search_call", "tool_search_output", "compaction",
	"additional_tools", "program", "program_output",
}

// itemTable is the table for an item of input.
var itemTable = tableWithState(slices.Concat(
	mediaRules,
	// A rule for these common names saves the search for other spellings.
	each(rule{}, "role", "status", "phase", "call_id", "name", "arguments", "input", "queries", "results", "action", "code", "encrypted_content",
		"server_label", "approval_request_id", "approve", "reason", "error"),
	[]rule{
		{Name: "id", Kinds: text, Deciding: true, Note: noteItemID},
		{Name: "type", Kinds: text, Deciding: true, Note: notePartType, Usual: itemTypes},
		{Name: "content", Kinds: text | array, Elem: object, Deciding: true, Members: contentPart},
		{Name: "output", Kinds: text | array | object, Elem: object, Deciding: true, Members: contentPart},
		{Name: "summary", Members: contentPart},
		{Name: "result", Kinds: text, Deciding: true, Note: noteItemResult},
		{Name: "tools", Members: responsesTools(noteUntypedItemTool, rule{Name: "annotations"})},
		{Name: "environment", AnySpelling: true, Members: environmentMembers},
		audioMember,
	},
)...)

// wholeItemMembers has the members that can hold the content of an item, by the type of the item. An
// item with an id needs one of them: otherwise the vendor looks up the stored item. The content of a
// file search is its results. The row "unknown" is for all other types.
var wholeItemMembers = map[string][]string{
	"message":               {"content"},
	"reasoning":             {"encrypted_content"},
	"compaction":            {"encrypted_content"},
	"image_generation_call": {"result"},
	"file_search_call":      {"results"},
	"web_search_call":       {"action"},
	"computer_call":         {"action", "actions"},
	"local_shell_call":      {"action"},
	"shell_call":            {"action"},
	"apply_patch_call":      {"operation"},
	"code_interpreter_call": {"code"},
	"program":               {"code"},
	"mcp_approval_response": {"approve"},
	"computer_call_output":  {"output"},
	"unknown":               {"content", "arguments", "output", "input", "action", "code", "tools", "operation", "approve"},
}

// emptyItemMembers has the same members of items whose content may be empty: a call without arguments, a
// tool that returned nothing, an empty list of tools. The types of OpenAI's SDK require these members.
var emptyItemMembers = map[string][]string{
	"function_call":           {"arguments"},
	"mcp_call":                {"arguments"},
	"mcp_approval_request":    {"arguments"},
	"tool_search_call":        {"arguments"},
	"custom_tool_call":        {"input"},
	"mcp_list_tools":          {"tools"},
	"tool_search_output":      {"tools"},
	"additional_tools":        {"tools"},
	"function_call_output":    {"output"},
	"custom_tool_call_output": {"output"},
	"local_shell_call_output": {"output"},
	"shell_call_output":       {"output"},
	"program_output":          {"result"},
	"apply_patch_call_output": {"status"}, // output is optional
}

// isWholeItem reports whether the item with the id n has its content. Otherwise the id names an item
// that the vendor stores. An item without a type needs a role and content.
func isWholeItem(body []byte, n strictjson.Note) bool {
	var item map[string]json.RawMessage
	if json.NewDecoder(bytes.NewReader(body[n.Object:])).Decode(&item) != nil {
		return false
	}
	given := func(name string) bool { return len(item[name]) > 0 && string(item[name]) != "null" }
	has := func(name string) bool { return given(name) && !isBlank(item[name]) }
	if !has("type") {
		return has("role") && has("content")
	}
	kind := unquote(item["type"])
	if members, ok := emptyItemMembers[kind]; ok {
		return slices.ContainsFunc(members, given)
	}
	members, ok := wholeItemMembers[kind]
	if !ok {
		members = wholeItemMembers["unknown"]
	}
	return slices.ContainsFunc(members, has)
}

// isBlank reports whether a value is an empty string or an empty array.
func isBlank(value []byte) bool {
	return string(value) == `""` || value[0] == '[' && len(bytes.TrimSpace(value[1:len(value)-1])) == 0
}

// isProgramResult reports whether the result n of an item is the text that a program returned.
func isProgramResult(body []byte, n strictjson.Note) bool {
	return typeAt(body, n.Object) == "program_output"
}
