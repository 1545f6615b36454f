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
	rule{Name: "input", Kinds: text | array, Elem: object, Required: true, Deciding: true, Members: itemTable},
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
	toolsMember(toolTable(noteUntypedTool, append(each(rule{}, responsesToolMembers...),
		rule{Name: "container", AnySpelling: true, Note: noteContainer, Members: tableWithState(stateMember("id"))},
		rule{Name: "tools", Members: chatTools},         // of a namespace
		rule{Name: "max_uses", Note: noteUnknownInTool}, // of /v1/messages: no bound here
	)...)),
)...)

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
		{Name: "result", Kinds: text, Deciding: true, Note: noteMediaData},
		{Name: "tools", Members: chatTools},
		stateObject("environment"),
		audioMember,
	},
)...)

// wholeItemMembers has the members that can hold the content of an item, by the type of the item. An
// item with an id needs one of them: otherwise the vendor looks up the stored item. The content of a
// file search is its results. The row "unknown" is for all other types.
var wholeItemMembers = map[string][]string{
	"message":                 {"content"},
	"reasoning":               {"encrypted_content"},
	"compaction":              {"encrypted_content"},
	"image_generation_call":   {"result"},
	"file_search_call":        {"results"},
	"web_search_call":         {"action"},
	"computer_call":           {"action", "actions"},
	"local_shell_call":        {"action"},
	"shell_call":              {"action"},
	"apply_patch_call":        {"operation"},
	"code_interpreter_call":   {"code"},
	"function_call":           {"arguments"},
	"mcp_call":                {"arguments"},
	"mcp_approval_request":    {"arguments"},
	"tool_search_call":        {"arguments"},
	"custom_tool_call":        {"input"},
	"mcp_approval_response":   {"approve"},
	"mcp_list_tools":          {"tools"},
	"tool_search_output":      {"tools"},
	"function_call_output":    {"output"},
	"custom_tool_call_output": {"output"},
	"computer_call_output":    {"output"},
	"unknown":                 {"content", "arguments", "output", "input", "action", "code", "tools", "operation", "approve"},
}

// isWholeItem reports whether the item with the id n has its content. Otherwise the id names an item
// that the vendor stores. An item without a type needs a role and content.
func isWholeItem(body []byte, n strictjson.Note) bool {
	var item map[string]json.RawMessage
	if json.NewDecoder(bytes.NewReader(body[n.Object:])).Decode(&item) != nil {
		return false
	}
	has := func(name string) bool {
		value := item[name]
		return len(value) > 0 && string(value) != "null" && string(value) != "[]" && string(value) != `""`
	}
	if !has("type") {
		return has("role") && has("content")
	}
	members, ok := wholeItemMembers[unquote(item["type"])]
	if !ok {
		members = wholeItemMembers["unknown"]
	}
	return slices.ContainsFunc(members, has)
}
