package modelcall

import (
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// The notes of a scan: members that few bodies have, or that are in elements of arrays.
const (
	_ = iota

	noteState     // names an object that the vendor stores: see stateNames
	noteAgent     // names an object that may have its own tools and model: see agentNames
	noteDocuments // documents

	noteUnknown           // an unknown member of the body
	noteUnknownInTool     // an unknown member of a tool
	noteUnknownInFallback // an unknown member of a fallback
	noteUnknownInFunction // an unknown member of an element of functions
	noteUntypedTool       // a tool without a type, on a route that needs one
	noteUntypedItemTool   // the same in an item, where tools of an MCP server have none
	noteEnvironment       // environment of a tool
	noteSkills            // skills of an environment

	noteTier          // service_tier
	noteSpeed         // speed
	noteGeo           // inference_geo
	noteFallbackList  // fallbacks: a string, or an array that may have strings in it
	noteModelList     // models
	noteAdapter       // lora_path
	noteFallbackModel // fallbacks[].model
	noteModeration    // moderation.model
	noteToolModel     // tools[].model
	noteToolType      // tools[].type
	noteInnerToolType // the type of a tool in a namespace
	noteExecution     // tools[].execution
	noteMaxUses       // tools[].max_uses
	noteMaxTokens     // tools[].max_tokens, or fallbacks[].max_tokens
	noteWebSearch     // web_search_options
	noteSearch        // search_parameters
	noteEnableSearch  // enable_search
	notePlugins       // plugins
	noteMCP           // mcp_servers
	noteContextEdit   // a type of context_management
	noteCompaction    // compaction
	noteModalities    // modalities: the media of the answer
	noteAudioOutput   // the body asks for an answer in audio
	noteReasoning     // reasoning, reasoningMembers, or a member of chat_template_kwargs
	noteOutputBound   // a bound of the output that some servers read in addition to max_tokens or instead of it
	noteMultiplier    // a member that makes some servers return several answers, on a route that does not define it
	noteOverride      // a member of extra_body that is only allowed at the top level
	noteRouting       // a member that makes some routers choose another model or server: see routing

	noteMaxToolCalls // max_tool_calls
	noteContainer    // container of a tool: the name of a stored one, or an object with the settings of a new one
	noteItemID       // the id of an item, which may name a stored item
	noteItemResult   // the result of an item: an image, or the text that a program returned

	notePartType    // the type of a part of the content
	noteMediaURL    // a source by URL, or a data URL
	noteAudioURL    // the same for audio
	noteAudioURLs   // an array of these
	noteMediaData   // media in Base64; some servers also accept a link
	noteAudioData   // the same for audio
	noteOpaque      // an object that is not read here, and that decides how much input the model reads
	noteSourceType  // source.type of a part
	noteSourceMedia // source.media_type of a part
	noteSourceData  // source.data of a part
	noteSourceURL   // source.url of a part
)

// toolMembers are the members that make the vendor run a tool, with the name of the tool in
// the price. If list is set, an empty array runs no tool.
var toolMembers = map[int]struct {
	param, name string
	list        bool
}{
	noteWebSearch:    {"web_search_options", "web_search", false},
	noteSearch:       {"search_parameters", "live_search", false},
	noteEnableSearch: {"enable_search", "web_search", false},
	notePlugins:      {"plugins", "plugins", true},
	noteMCP:          {"mcp_servers", "mcp", true},
}

// unknownMembers are the notes of members whose effect on the price is unknown, with the
// prefix of their names in pass_member.
var unknownMembers = map[int]string{
	noteUnknown: "", noteAgent: "", noteUnknownInTool: "tools[].", noteEnvironment: "tools[].", noteUnknownInFallback: "fallbacks[].", noteUnknownInFunction: "functions[].",
}

// closedTable returns a table of the rules, of the members that name stored objects, and of
// the known names. Every other member is noted under note.
func closedTable(note int, rules []rule, known ...string) *strictjson.Table {
	for _, r := range each(rule{}, known...) {
		if !slices.ContainsFunc(rules, func(other rule) bool { return other.Name == r.Name }) {
			rules = append(rules, r)
		}
	}
	return tableWithState(rules...).NoteUnknown(note)
}

// each returns r once for each name.
func each(r rule, names ...string) []rule {
	rules := make([]rule, len(names))
	for i, name := range names {
		rules[i] = r
		rules[i].Name = name
	}
	return rules
}

// bodyTable returns the table for the body of a route. A rule of the route replaces the rule of
// optionMembers with the same name.
func bodyTable(rules ...rule) *strictjson.Table {
	for _, option := range optionMembers {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.Name == option.Name }) {
			rules = append(rules, option)
		}
	}
	return closedTable(noteUnknown, append(rules, cacheKeyMember), knownMembers...)
}

// optionMembers are the members that decide the price, the models or the tenant, without the
// members of one dialect. Each route has all of them, because backends accept the members of
// one dialect in the other.
var optionMembers = append(commonOptions(), rule{Name: "extra_body", Kinds: object, Members: closedTable(noteUnknown, append(
	append(commonOptions(), each(rule{Deciding: true, Note: noteOverride}, overrides...)...),
	rule{Name: "google", Kinds: object, AnySpelling: true, Members: closedTable(noteUnknown, []rule{outputBound("thinking_config")}, "thought_tag_marker")},
), knownMembers...)})

// routing are the members that make routers in front of models, such as LiteLLM, choose
// another model, account or server than the body names. They are refused, because scope
// and price are checked for the named models.
var routing = []string{
	"context_window_fallbacks", "content_policy_fallbacks", "context_window_fallback_dict", "fallback_models", "user_config", "model_list",
	"api_base", "base_url", "custom_llm_provider", "deployment_id",
}

// overrides are the members that some servers read from extra_body instead of the checked
// ones.
var overrides = []string{
	"model", "messages", "prompt", "stream", "stream_options", "tools", "max_tokens", "max_completion_tokens", "n", "best_of",
}

func commonOptions() []rule {
	return slices.Concat([]rule{
		textOption("service_tier", noteTier),
		textOption("speed", noteSpeed),
		textOption("inference_geo", noteGeo),

		{Name: "fallbacks", Kinds: text | array, Elem: text | object, Deciding: true, Note: noteFallbackList, Members: closedTable(noteUnknownInFallback, []rule{
			{Name: "model", Kinds: text, Required: true, Deciding: true, Note: noteFallbackModel},
			{Name: "fallbacks", Deciding: true, Note: noteRouting},
			{Name: "models", Deciding: true, Note: noteRouting},
			textOption("service_tier", noteTier),
			textOption("speed", noteSpeed),
			textOption("inference_geo", noteGeo),
			{Name: "max_tokens", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxTokens},
			{Name: "thinking", Note: noteReasoning},
		}, "output_config")},
		{Name: "models", Kinds: array, Elem: text, Deciding: true, Note: noteModelList},
		{Name: "lora_path", Kinds: text | array, Elem: text | null, Deciding: true, Note: noteAdapter},
		{Name: "moderation", Members: table(textOption("model", noteModeration))},

		{Name: "web_search_options", Deciding: true, Note: noteWebSearch},
		{Name: "search_parameters", Deciding: true, Note: noteSearch},
		{Name: "enable_search", Deciding: true, Note: noteEnableSearch},
		{Name: "plugins", Deciding: true, Note: notePlugins},
		{Name: "mcp_servers", Kinds: array, Elem: object, Deciding: true, Note: noteMCP, Members: stateTable},
		{Name: "context_management", Kinds: object | array, Elem: object, Deciding: true, Members: tableWithState(
			textOption("type", noteContextEdit),
			rule{Name: "edits", Kinds: array, Elem: object, Deciding: true, Members: tableWithState(textOption("type", noteContextEdit))},
		)},
		{Name: "compaction", Deciding: true, Note: noteCompaction},
		{Name: "diagnostics", Kinds: object, AnySpelling: true, Members: stateTable},
		{Name: "documents", AnySpelling: true, Note: noteDocuments, Members: tableWithState(stateObject("data"))},
		{Name: "functions", Members: closedTable(noteUnknownInFunction, nil, "name", "description", "parameters", "strict")},

		// These may turn an image into any number of tokens.
		{Name: "mm_processor_kwargs", Note: noteOpaque},
		{Name: "media_io_kwargs", Note: noteOpaque},

		{Name: "modalities", Kinds: array, Elem: text, Deciding: true, Note: noteModalities},
		{Name: "audio", Kinds: object, Deciding: true, Note: noteAudioOutput, Members: tableWithState(
			stateMember("id"), stateObject("voice", stateMember("id")),
		)},
		{Name: "reasoning", Note: noteReasoning, Members: table(outputBound("max_tokens"))},
		{Name: "chat_template_kwargs", Note: noteReasoning, Members: table().NoteUnknown(noteReasoning)}, // each model has names of its own
	}, each(rule{Note: noteReasoning}, reasoningMembers...), each(rule{Deciding: true, Note: noteOutputBound}, outputBounds...), each(rule{Note: noteRouting}, routing...))
}

// reasoningMembers are the members by which servers are asked for reasoning, or to hide it: Qwen, vLLM,
// SGLang, llama.cpp, Ollama, Mistral. The rejected part of a prediction is output that no caller sees, either.
var reasoningMembers = []string{
	"enable_thinking", "think", "prompt_mode", "include_reasoning", "separate_reasoning", "stream_reasoning", "reasoning_format", "prediction",
}

// outputBounds are the members that some servers read in addition to max_tokens or instead of
// it: llama.cpp, TGI, SGLang, Ollama, Qwen, Gemini. A minimum, or a budget for thinking, may
// exceed max_tokens as well. A body with such a member reserves the whole max_output.
var outputBounds = []string{
	"n_predict", "num_predict", "max_new_tokens", "max_output_tokens", "max_generated_tokens", "max_tokens_to_sample", "max_length",
	"min_tokens", "thinking_budget", "thinking_token_budget",
}

// outputBound and multiplier return the rule for a member that has this meaning for some
// servers of the route. The member may be repeated, because each occurrence is noted.
func outputBound(name string) rule { return rule{Name: name, Note: noteOutputBound} }
func multiplier(name string) rule  { return rule{Name: name, Note: noteMultiplier} }

// maxCount bounds the counts of a tool or a fallback.
const maxCount = 1 << 40

// textOption returns the rule for a deciding member that is a string.
func textOption(name string, note int) rule {
	return rule{Name: name, Kinds: text, Deciding: true, Note: note}
}

// toolTable returns the rules for an element of tools. The parameters of a function are
// not checked. Untyped is the note for a tool without a type; zero allows one. Tools may
// be grouped by a tool of the type namespace, which has no namespaces in it.
func toolTable(untyped int, rules ...rule) *strictjson.Table {
	return toolTableOf(noteToolType, untyped, append(rules, rule{Name: "tools", Members: innerTools})...)
}

// innerTools is the table for a tool in a namespace.
var innerTools = toolTableOf(noteInnerToolType, noteUntypedTool)

// toolTableOf is toolTable with the note of the type, and without the tools of a namespace.
func toolTableOf(kind, untyped int, rules ...rule) *strictjson.Table {
	if !slices.ContainsFunc(rules, func(r rule) bool { return r.Name == maxUses.Name }) {
		rules = append(rules, maxUses)
	}
	// These members belong to tools that vendors run, and name objects that vendors store.
	rules = append(rules, each(rule{AnySpelling: true, Note: noteUnknownInTool, Members: stateTable},
		"input_image_mask", "file_search", "code_interpreter")...)
	return closedTable(noteUnknownInTool, append(rules,
		rule{Name: "type", Kinds: text, Deciding: true, Note: kind, Usual: []string{"function", "custom"}, Absent: untyped},
		textOption("model", noteToolModel),
		textOption("execution", noteExecution),
		rule{Name: "environment", AnySpelling: true, Deciding: true, Note: noteEnvironment, Members: environmentMembers},
		rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxTokens},
	), knownToolMembers...)
}

// environmentMembers is the table for the place where a shell runs.
var environmentMembers = tableWithState(
	rule{Name: "type", Kinds: text, Deciding: true},
	rule{Name: "skills", AnySpelling: true, Deciding: true, Note: noteSkills, Members: stateTable},
)

// maxUses is the rule for the number of uses that a tool allows.
var maxUses = rule{Name: "max_uses", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxUses}
