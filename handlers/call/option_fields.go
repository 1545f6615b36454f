package call

import (
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// What a scan notes of a body beside its slots: members that few bodies have, or
// that stand in elements of arrays.
const (
	_ = iota

	noteState     // names what the vendor's account keeps: see statefulNames
	noteAgent     // names one that may have tools and a model of its own: see agentNames
	noteDocuments // documents

	noteOther         // a member of the body that the gateway does not know
	noteOtherTool     // one of a tool
	noteOtherFallback // one of a fallback
	noteOtherFunction // one of functions
	noteUntypedTool   // a tool without a type, where it needs one

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
	noteCompaction    // compaction
	noteModalities    // what the answer may hold
	noteSpeech        // the body asks for an answer in audio
	noteReasoning     // reasoning
	noteOutputBound   // a bound of the output that some server takes beside max_tokens, or in its place
	noteMultiplier    // a member by which some server makes several answers, and which this route does not read
	noteOverride      // a member of extra_body that decides here only at the top
	noteRouting       // a member by which some router chooses another model or server; see [routing]

	notePartType    // the type of a part of the content
	noteURL         // a source by URL, or a data URL
	noteAudioURL    // the same, of audio
	noteData        // media in Base64, where some servers take a link, too
	noteAudioData   // the same, of audio
	noteDeep        // an object that is not looked at and decides how much is read: content nested too deeply, and more
	noteSourceType  // of the source of a part: the type,
	noteSourceMedia // the media type,
	noteSourceData  // the data,
	noteSourceURL   // and the link
)

// memberTools are the tools that a member of the body has the vendor run, by the
// names under which they are priced. A list of them may be empty.
var memberTools = map[int]struct {
	param, name string
	list        bool
}{
	noteWebSearch:    {"web_search_options", "web_search", false},
	noteSearch:       {"search_parameters", "live_search", false},
	noteEnableSearch: {"enable_search", "web_search", false},
	notePlugins:      {"plugins", "plugins", true},
	noteMCP:          {"mcp_servers", "mcp", true},
}

// otherMembers are the notes of members that may change the price in a way that is
// not known, and where they stand, as pass_member names them.
var otherMembers = map[int]string{
	noteOther: "", noteAgent: "", noteOtherTool: "tools[].", noteOtherFallback: "fallbacks[].", noteOtherFunction: "functions[].",
}

// closed makes a table of rules, of the stateful names and of more names that
// are known. Any other member is noted.
func closed(note int, rules []rule, known ...string) *strictjson.Table {
	for _, name := range known {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.Name == name }) {
			rules = append(rules, rule{Name: name})
		}
	}
	return stateful(rules...).NoteOthers(note)
}

// bodyFields makes the table for the body of a route.
func bodyFields(rules ...rule) *strictjson.Table {
	return closed(noteOther, append(rules, optionFields...), knownMembers...)
}

// optionFields are the members of every route that decide the price, the models
// or the tenant of a call beside those of its own dialect. They stand on each
// route, since backends take one dialect's members in the other, too.
var optionFields = append(sharedOptions(), rule{Name: "extra_body", Kinds: object, Members: closed(noteOther, append(sharedOptions(),
	override("model"), override("messages"), override("prompt"), override("stream"), override("stream_options"), override("tools"),
	override("max_tokens"), override("max_completion_tokens"), override("n"), override("best_of"),
	rule{Name: "google", Kinds: object, AnySpelling: true, Members: closed(noteOther, []rule{outputBound("thinking_config")}, "thought_tag_marker")},
), knownMembers...)})

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
	return withRouting(withOutput([]rule{
		option("service_tier", noteTier),
		option("speed", noteSpeed),
		option("inference_geo", noteGeo),

		{Name: "fallbacks", Kinds: text | array, Elem: text | object, Deciding: true, Note: noteModels, Members: closed(noteOtherFallback, []rule{
			{Name: "model", Kinds: text, Required: true, Deciding: true, Note: noteFallbackModel},
			{Name: "fallbacks", Deciding: true, Note: noteRouting},
			{Name: "models", Deciding: true, Note: noteRouting},
			option("service_tier", noteTier),
			option("speed", noteSpeed),
			option("inference_geo", noteGeo),
			{Name: "max_tokens", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxTokens},
			{Name: "thinking", Note: noteReasoning},
		}, "output_config")},
		{Name: "models", Kinds: array, Elem: text, Deciding: true, Note: noteMoreModels},
		{Name: "lora_path", Kinds: text | array, Elem: text | null, Deciding: true, Note: noteAdapter},
		{Name: "moderation", Members: table(option("model", noteModeration))},

		{Name: "web_search_options", Deciding: true, Note: noteWebSearch},
		{Name: "search_parameters", Deciding: true, Note: noteSearch},
		{Name: "enable_search", Deciding: true, Note: noteEnableSearch},
		{Name: "plugins", Deciding: true, Note: notePlugins},
		{Name: "mcp_servers", Kinds: array, Elem: object, Deciding: true, Note: noteMCP, Members: keptMembers},
		{Name: "context_management", Kinds: object | array, Elem: object, Deciding: true, Members: stateful(
			option("type", noteEdit),
			rule{Name: "edits", Kinds: array, Elem: object, Deciding: true, Members: stateful(option("type", noteEdit))},
		)},
		{Name: "compaction", Deciding: true, Note: noteCompaction},
		{Name: "diagnostics", Kinds: object, AnySpelling: true, Members: keptMembers},
		{Name: "documents", AnySpelling: true, Note: noteDocuments, Members: stateful(keptBelow("data"))},
		{Name: "functions", Members: closed(noteOtherFunction, nil, "name", "description", "parameters", "strict")},

		// They may make any number of tokens out of an image.
		{Name: "mm_processor_kwargs", Note: noteDeep},
		{Name: "media_io_kwargs", Note: noteDeep},

		{Name: "modalities", Kinds: array, Elem: text, Deciding: true, Note: noteModalities},
		{Name: "audio", Kinds: object, Deciding: true, Note: noteSpeech, Members: stateful(
			kept("id"), keptBelow("voice", kept("id")),
		)},
	}))
}

// outputBounds are the members by which some server bounds its output beside
// max_tokens, or in its place: llama.cpp, TGI, SGLang, Ollama, Qwen, Gemini. A
// minimum, and a budget to think with, may exceed max_tokens, too. A body that has
// one reserves the whole max_output.
var outputBounds = []string{
	"n_predict", "num_predict", "max_new_tokens", "max_output_tokens", "max_generated_tokens", "max_tokens_to_sample", "max_length",
	"min_tokens", "thinking_budget", "thinking_token_budget",
}

// withOutput adds the rules for the members of every route that decide how much
// output a call may have.
func withOutput(rules []rule) []rule {
	for _, name := range outputBounds {
		rules = append(rules, rule{Name: name, Deciding: true, Note: noteOutputBound})
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
// is the caller's own. A route whose tools need a type gives the note for one
// without.
func toolFields(untyped int, rules ...rule) *strictjson.Table {
	// These belong to tools that vendors run, and name what is kept there.
	server := func(name string) rule {
		return rule{Name: name, AnySpelling: true, Note: noteOtherTool, Members: keptMembers}
	}
	return closed(noteOtherTool, append(rules,
		rule{Name: "type", Kinds: text, Deciding: true, Note: noteToolType, Usual: []string{"function", "custom"}, Absent: untyped},
		option("model", noteToolModel),
		rule{Name: "max_uses", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxUses},
		rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: maxCount, Deciding: true, Note: noteMaxTokens},
		server("environment"), server("input_image_mask"), server("file_search"), server("code_interpreter"),
	), knownToolMembers...)
}

// clientTools are the types of tools that the caller runs, without their dates,
// and mcp_toolset, which only selects from mcp_servers.
var clientTools = []string{"mcp_toolset", "function", "custom", "bash", "text_editor", "computer", "memory", "local_shell", "apply_patch"}
