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

// itemContent has, by the type of an item, the members that can hold its content, and whether that may be
// empty: a call without arguments, a tool that returned nothing. Then OpenAI's SDK requires the member. An
// item with an id needs one of the members: otherwise the vendor looks up the stored item. The content of a
// file search is its results; an apply_patch_call_output may lack its output, and has a status. The row
// "unknown" is for all other types.
var itemContent = map[string]struct {
	mayBeEmpty bool
	members    []string
}{
	"message":                 {false, []string{"content"}},
	"reasoning":               {false, []string{"encrypted_content"}},
	"compaction":              {false, []string{"encrypted_content"}},
	"image_generation_call":   {false, []string{"result"}},
	"file_search_call":        {false, []string{"results"}},
	"web_search_call":         {false, []string{"action"}},
	"computer_call":           {false, []string{"action", "actions"}},
	"local_shell_call":        {false, []string{"action"}},
	"shell_call":              {false, []string{"action"}},
	"apply_patch_call":        {false, []string{"operation"}},
	"code_interpreter_call":   {false, []string{"code"}},
	"program":                 {false, []string{"code"}},
	"mcp_approval_response":   {false, []string{"approve"}},
	"computer_call_output":    {false, []string{"output"}},
	"unknown":                 {false, []string{"content", "arguments", "output", "input", "action", "code", "tools", "operation", "approve"}},
	"function_call":           {true, []string{"arguments"}},
	"mcp_call":                {true, []string{"arguments"}},
	"mcp_approval_request":    {true, []string{"arguments"}},
	"tool_search_call":        {true, []string{"arguments"}},
	"custom_tool_call":        {true, []string{"input"}},
	"mcp_list_tools":          {true, []string{"tools"}},
	"tool_search_output":      {true, []string{"tools"}},
	"additional_tools":        {true, []string{"tools"}},
	"function_call_output":    {true, []string{"output"}},
	"custom_tool_call_output": {true, []string{"output"}},
	"local_shell_call_output": {true, []string{"output"}},
	"shell_call_output":       {true, []string{"output"}},
	"program_output":          {true, []string{"result"}},
	"apply_patch_call_output": {true, []string{"status"}},
}

// isWholeItem reports whether the item with the id n has its content. Otherwise the id names an item
// that the vendor stores. An item without a type needs a role and content.
func isWholeItem(body []byte, n strictjson.Note) bool {
	var item map[string]json.RawMessage
	if json.NewDecoder(bytes.NewReader(body[n.Object:])).Decode(&item) != nil {
		return false
	}
	has := func(name string, mayBeEmpty bool) bool {
		value := item[name]
		return len(value) > 0 && string(value) != "null" && (mayBeEmpty || !isBlank(value))
	}
	if !has("type", false) {
		return has("role", false) && has("content", false)
	}
	content, known := itemContent[unquote(item["type"])]
	if !known {
		content = itemContent["unknown"]
	}
	return slices.ContainsFunc(content.members, func(name string) bool { return has(name, content.mayBeEmpty) })
}

// isBlank reports whether a value is an empty string or an empty array.
func isBlank(value []byte) bool {
	return string(value) == `""` || value[0] == '[' && len(bytes.TrimSpace(value[1:len(value)-1])) == 0
}

// isProgramResult reports whether the result n of an item is the text that a program returned.
func isProgramResult(body []byte, n strictjson.Note) bool {
	return typeAt(body, n.Object) == "program_output"
}
