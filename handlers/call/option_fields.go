package call

import "github.com/caddy-modelgate/modelgate/internal/strictjson"

// What a scan notes of a body beside its slots: members that few bodies have, or
// that stand in elements of arrays.
const (
	_ = iota

	noteState // names what the vendor's account keeps: see statefulNames

	noteTier          // service_tier
	noteSpeed         // speed
	noteGeo           // inference_geo
	noteModels        // fallbacks: a string, or an array that may have strings in it
	noteMoreModels    // models
	noteAdapter       // lora_path
	noteFallbackModel // fallbacks[].model
	noteModeration    // moderation.model
	noteToolModel     // tools[].model
	noteToolType      // tools[].type
	noteMaxUses       // of the tool that the same object names
	noteMaxTokens     // of the tool or the fallback that the same object names
	noteWebSearch     // web_search_options
	noteSearch        // search_parameters
	noteEnableSearch  // enable_search
	notePlugins       // plugins
	noteMCP           // mcp_servers
	noteEdit          // a type of context_management
	noteModalities    // what the answer may hold
	noteSpeech        // the body asks for an answer in audio
	noteReasoning     // reasoning
	noteOutputBound   // a bound of the output that some server takes beside max_tokens, or in its place
	noteMultiplier    // a member by which some server makes several answers; see [multipliers]
	noteOverride      // a member of extra_body that decides here only at the top
	noteRouting       // a member by which some router chooses another model or server; see [routing]

	notePartType    // the type of a part of the content
	noteURL         // a source by URL, or a data URL
	noteAudioURL    // the same, of audio
	noteAudioData   // audio in Base64
	noteDeep        // content that is nested too deeply to be looked at
	noteSourceType  // of the source of a part: the type,
	noteSourceMedia // the media type,
	noteSourceData  // the data,
	noteSourceURL   // and the link
)

// memberTools are the tools that a member of the body has the vendor run, by the
// names under which they are priced.
var memberTools = map[int]struct{ param, name string }{
	noteWebSearch:    {"web_search_options", "web_search"},
	noteSearch:       {"search_parameters", "live_search"},
	noteEnableSearch: {"enable_search", "web_search"},
	notePlugins:      {"plugins", "plugins"},
	noteMCP:          {"mcp_servers", "mcp"},
}

// statefulNames are the members that name something the vendor keeps for the
// account of the operator, where it may be that of another tenant. Each is noted
// in every object of a body that the gateway looks into, so that a route cannot
// forget one. Names that mean this in one place alone, such as audio.id, are
// rules of that place.
var statefulNames = []string{
	// Files, containers, stored answers and other objects of a vendor's account.
	"file_id", "file_ids", "container", "container_id", "previous_response_id", "conversation", "previous_message_id",
	"vector_store_id", "vector_store_ids", "tool_resources", "connector_id", "tunnel_id", "skill_id", "skills",
	"fallback_credit_token", "cached_content", "user_profile_id",

	// Answers that are kept to be fetched later.
	"background", "deferred",

	// Requests, slots and caches of inference servers: vLLM, SGLang, llama.cpp.
	"request_id", "rid", "id_slot", "slot_id", "session_params", "kv_transfer_params", "bootstrap_host", "bootstrap_room",
}

// statefulTypes are the types of content that do.
var statefulTypes = []string{"container_upload", "item_reference"}

// stateful makes a table of rules and of the stateful names that are not among
// them.
func stateful(rules ...rule) *strictjson.Table {
	return table(withStateful(rules)...)
}

func withStateful(rules []rule) []rule {
	for _, name := range statefulNames {
		rules = append(rules, rule{Name: name, Deciding: true, Note: noteState})
	}
	return rules
}

// optionFields are the members of every route that decide the price, the models
// or the tenant of a call beside those of its own dialect. They stand on each
// route, since backends take one dialect's members in the other, too.
func optionFields() []rule {
	return append(sharedOptions(), rule{Name: "extra_body", Kinds: object, Members: table(append(sharedOptions(),
		override("model"), override("messages"), override("prompt"), override("stream"), override("stream_options"), override("tools"),
		override("max_tokens"), override("max_completion_tokens"), override("n"), override("best_of"),
		rule{Name: "google", Kinds: object, Members: stateful()},
	)...)})
}

// routing are the members by which routers in front of models, such as LiteLLM,
// choose another model, account or server than the body names. They are refused:
// the key's scope and the price are those of the named models.
var routing = []string{
	"context_window_fallbacks", "content_policy_fallbacks", "context_window_fallback_dict", "fallback_models", "user_config", "model_list",
	"api_base", "base_url", "custom_llm_provider", "deployment_id",
}

func withRouting(rules []rule) []rule {
	for _, name := range routing {
		rules = append(rules, rule{Name: name, Note: noteRouting})
	}
	return rules
}

// override is the rule for a member that some servers take from extra_body in
// place of the one that was checked.
func override(name string) rule { return rule{Name: name, Deciding: true, Note: noteOverride} }

func sharedOptions() []rule {
	return withStateful(withRouting(withOutput([]rule{
		option("service_tier", noteTier),
		option("speed", noteSpeed),
		option("inference_geo", noteGeo),

		{Name: "fallbacks", Kinds: text | array, Elem: text | object, Deciding: true, Note: noteModels, Members: stateful(
			rule{Name: "model", Kinds: text, Required: true, Deciding: true, Note: noteFallbackModel},
			rule{Name: "fallbacks", Deciding: true, Note: noteRouting},
			rule{Name: "models", Deciding: true, Note: noteRouting},
			option("service_tier", noteTier),
			option("speed", noteSpeed),
			option("inference_geo", noteGeo),
			rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxTokens},
		)},
		{Name: "models", Kinds: array, Elem: text, Deciding: true, Note: noteMoreModels},
		{Name: "lora_path", Kinds: text | array, Elem: text | null, Deciding: true, Note: noteAdapter},
		{Name: "moderation", Members: table(option("model", noteModeration))},

		{Name: "web_search_options", Deciding: true, Note: noteWebSearch},
		{Name: "search_parameters", Deciding: true, Note: noteSearch},
		{Name: "enable_search", Deciding: true, Note: noteEnableSearch},
		{Name: "plugins", Deciding: true, Note: notePlugins},
		{Name: "mcp_servers", Kinds: array, Elem: object, Deciding: true, Note: noteMCP, Members: stateful()},
		{Name: "context_management", Kinds: object | array, Elem: object, Deciding: true, Members: stateful(
			option("type", noteEdit),
			rule{Name: "edits", Kinds: array, Elem: object, Deciding: true, Members: stateful(option("type", noteEdit))},
		)},
		{Name: "diagnostics", Kinds: object, Members: stateful()},

		{Name: "modalities", Kinds: array, Elem: text, Deciding: true, Note: noteModalities},
		{Name: "audio", Kinds: object, Deciding: true, Note: noteSpeech, Members: stateful(
			rule{Name: "voice", Kinds: text | object, Members: stateful(rule{Name: "id", Deciding: true, Note: noteState})},
		)},
	})))
}

// outputBounds are the members by which some server bounds its output beside
// max_tokens, or in its place: llama.cpp, TGI, SGLang, Ollama, Qwen, Gemini. A
// minimum, and a budget to think with, may exceed max_tokens, too. A body that has
// one reserves the whole max_output.
var outputBounds = []string{
	"n_predict", "num_predict", "max_new_tokens", "max_output_tokens", "max_generated_tokens", "max_tokens_to_sample", "max_length",
	"min_tokens", "thinking_budget",
}

// outputBoundObjects are the objects that may hold such a member. They are not
// looked into.
var outputBoundObjects = []string{"options", "sampling_params", "parameters", "generation_config", "generationConfig"}

// multipliers are the members by which some server makes several answers, or
// searches along several, and which no route reads.
var multipliers = []string{"num_return_sequences", "candidate_count", "num_beams", "use_beam_search"}

// withOutput adds the rules for the members of every route that decide how much
// output a call may have.
func withOutput(rules []rule) []rule {
	for _, name := range outputBounds {
		rules = append(rules, rule{Name: name, Deciding: true, Note: noteOutputBound})
	}
	for _, name := range outputBoundObjects {
		rules = append(rules, outputBound(name))
	}
	for _, name := range multipliers {
		rules = append(rules, multiplier(name))
	}
	return append(rules, rule{Name: "reasoning", Note: noteReasoning, Members: table(outputBound("max_tokens"))})
}

// outputBound and multiplier are the rules for a member that has this meaning to
// some servers of the route. A second one changes nothing: each is noted.
func outputBound(name string) rule { return rule{Name: name, Note: noteOutputBound} }
func multiplier(name string) rule  { return rule{Name: name, Note: noteMultiplier} }

// maxCount bounds the counts that a tool or a fallback may be given.
const maxCount = 1 << 40

// option is a text that decides.
func option(name string, note int) rule {
	return rule{Name: name, Kinds: text, Deciding: true, Note: note}
}

// toolFields are the rules for an element of tools. What a tool's function takes
// is the caller's own.
func toolFields(rules ...rule) *strictjson.Table {
	return stateful(append(rules,
		rule{Name: "type", Kinds: text, Deciding: true, Note: noteToolType, Usual: []string{"function", "custom"}},
		option("model", noteToolModel),
		rule{Name: "max_uses", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxUses},
		rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxTokens},
		rule{Name: "environment", Members: stateful()},
		rule{Name: "input_image_mask", Members: stateful()},
		rule{Name: "file_search", Members: stateful()},
		rule{Name: "code_interpreter", Members: stateful()},
	)...)
}

// clientTools are the types of tools that the caller runs, without their dates,
// and mcp_toolset, which only selects from mcp_servers.
var clientTools = []string{"mcp_toolset", "function", "custom", "bash", "text_editor", "computer", "memory", "local_shell", "apply_patch"}

// textParts are the types of content that hold nothing but inline text, or whose
// media stand in members of their own, which are noted.
var textParts = []string{
	"text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "image_url", "input_audio", "file",
	"search_result", "refusal", "tool_reference", "input_text", "output_text", "input_image", "input_file", "audio_url",
	"server_tool_use", "web_search_tool_result", "web_search_result", "web_search_tool_result_error",
	"web_fetch_tool_result", "web_fetch_result", "web_fetch_tool_result_error", "code_execution_tool_result", "code_execution_result",
	"bash_code_execution_tool_result", "bash_code_execution_result", "text_editor_code_execution_tool_result",
	"tool_search_tool_result", "tool_search_tool_search_result", "mcp_tool_use", "mcp_tool_result", "advisor_tool_result",
	"compaction", "reasoning", "reasoning.text", "summary_text",
}

// maxParts is how deeply parts of content are looked into: a page in a document
// in the result of a tool in a message is four.
const maxParts = 4

// contentPart is the table for one part of the content of a message, in either
// dialect.
var contentPart = partFields(maxParts)

// partFields are the rules for a part that may hold others, depth levels with
// itself.
func partFields(depth int) *strictjson.Table {
	content := rule{Name: "content", Kinds: text | array | object, Elem: text | object, Deciding: true}
	source := []rule{
		option("type", noteSourceType),
		option("media_type", noteSourceMedia),
		option("data", noteSourceData),
		{Name: "url", Kinds: text, Deciding: true, Note: noteSourceURL},
	}
	if depth > 1 {
		content.Members = partFields(depth - 1)
		source = append(source, content)
	} else {
		content.Kinds, content.Elem, content.Note = text|array|object, 0, noteDeep
		source = append(source, content)
	}
	media := func(name string, note int) rule {
		return rule{Name: name, Deciding: true, Note: note, Members: stateful(
			rule{Name: "url", Deciding: true, Note: note},
			rule{Name: "file_data", Deciding: true, Note: note},
			rule{Name: "file_url", Deciding: true, Note: note},
			rule{Name: "data", Deciding: true, Note: note},
		)}
	}
	link := func(name string) rule { return rule{Name: name, Deciding: true, Note: noteURL} }
	return stateful(
		rule{Name: "type", Kinds: text, Deciding: true, Note: notePartType, Usual: textParts},
		rule{Name: "text"}, rule{Name: "id"}, rule{Name: "tool_use_id"}, rule{Name: "name"}, rule{Name: "input"}, // found, not folded
		content,
		rule{Name: "source", Kinds: text | object, Deciding: true, Members: stateful(source...)},
		media("image_url", noteURL), media("video_url", noteURL), media("file", noteURL),
		media("image", noteURL), media("image_file", noteURL), media("video", noteURL), media("document", noteURL),
		media("audio_url", noteAudioURL), media("audio", noteAudioURL), media("input_audio", noteAudioData),
		link("url"), link("file_url"), link("file_data"), link("image_embeds"), link("audio_embeds"),
		rule{Name: "uuid", Deciding: true, Note: noteState}, // of media that vLLM has cached
	)
}
