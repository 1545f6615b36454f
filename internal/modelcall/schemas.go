package modelcall

import (
	"math"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// Schema declares the body of a route: its members and their rules, and whether a stream only
// reports its usage on request.
type Schema struct {
	members *strictjson.Table

	// AsksUsage is set if a stream only reports its usage if the body requests it.
	AsksUsage bool

	// Unit is what a call may be charged by in addition to its tokens.
	Unit catalog.Unit

	files         map[string]int // the files of a form, and how many are allowed
	reportSeconds []string       // formats of a transcript that report seconds; empty: the default

	noModel bool // the body names no model

	defaultModel string // of a body that has no model; empty: the body must have one

	ownable bool // with `state own`, the body may name stored objects of the user

	maxTokens string // the member that bounds the output; empty: max_tokens

	prompt string // the member that has a text, tokens, or an array of either; empty: none
}

// The schemas of the routes.
var (
	Messages    = &Schema{members: messagesMembers}
	CountTokens = &Schema{members: countTokensMembers}
	Completions = &Schema{members: completionsMembers, AsksUsage: true, prompt: "prompt"}
	Chat        = &Schema{members: chatMembers, AsksUsage: true}
	Responses   = &Schema{members: responsesMembers, ownable: true, maxTokens: "max_output_tokens"}
	Embeddings  = &Schema{members: embeddingsMembers, prompt: "input"}
	Moderations = &Schema{members: moderationsMembers, defaultModel: "omni-moderation-latest"} // as the vendor documents
	Rerank      = &Schema{members: rerankMembers}

	// NoBody is for routes of objects without a body, ItemList for those with items or metadata.
	NoBody   = &Schema{members: tableWithState(), noModel: true}
	ItemList = &Schema{members: itemListMembers, noModel: true, ownable: true}

	Images     = &Schema{members: imageMembersOfRoute, Unit: catalog.ImageUnit}
	ImageEdits = &Schema{members: editMembers, Unit: catalog.ImageUnit}
	Speech     = &Schema{members: speechMembers, Unit: catalog.CharacterUnit}
)

// The schemas of forms.
var (
	ImageEditsForm     = &Schema{members: editFormMembers, Unit: catalog.ImageUnit, files: imageFiles}
	TranscriptionsForm = &Schema{
		members: recordingMembers, Unit: catalog.SecondUnit, files: audioFiles,
		reportSeconds: []string{"", "json", "verbose_json", "diarized_json"},
	}
	TranslationsForm = &Schema{
		members: recordingMembers, Unit: catalog.SecondUnit, files: audioFiles,
		reportSeconds: []string{"verbose_json"},
	}
)

// Short names for the tables below.
type rule = strictjson.Rule

var table = strictjson.NewTable

const (
	text    = strictjson.String
	number  = strictjson.Number
	integer = strictjson.Integer
	boolean = strictjson.Bool
	object  = strictjson.Object
	array   = strictjson.Array
	null    = strictjson.Null
)

// The slots of a scan, each for the value of one member.
const (
	_ = iota
	slotModel
	slotStream
	slotPrompt
	slotPromptElements
	slotMaxTokens
	slotMaxCompletionTokens
	slotChoices
	slotBestOf
	slotStreamOptions
	slotIncludeUsage
	slotThinking
	slotThinkingType
	slotReasoningEffort
	slotTools
	slotQuery
	slotDocuments
	slotSize
	slotQuality
	slotPartialImages
	slotFormat
	slotStreamFormat
	slotFiles
	slotMask
	slotCacheKey
	slotStore
	slots
)

// modelMember and streamMember are in every table.
var (
	modelMember  = rule{Name: "model", Kinds: text, Required: true, Deciding: true, Slot: slotModel}
	streamMember = rule{Name: "stream", Kinds: boolean, Deciding: true, Slot: slotStream}
)

// cacheKeyMember is the rule for the text by which a vendor finds the cache of a prompt.
var cacheKeyMember = rule{Name: "prompt_cache_key", Slot: slotCacheKey}

// The members of docs/reference/calls.md#messages, and those that decide the price.
// Every other member passes unchecked if the call has no price.
var messagesMembers = bodyTable(append(messagesCommon(),
	rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: math.MaxInt64, Required: true, Deciding: true, Slot: slotMaxTokens},
	outputBound("max_completion_tokens"),
	multiplier("n"),
	multiplier("best_of"),
	streamMember,
	rule{Name: "temperature", Kinds: number},
	rule{Name: "top_p", Kinds: number},
	rule{Name: "top_k", Kinds: integer},
	rule{Name: "stop_sequences", Kinds: array, Elem: text},
	rule{Name: "metadata", Kinds: object, Members: table(rule{Name: "user_id", Kinds: text})},
)...)

// The members of POST /v1/messages/count_tokens. Counting has no price.
var countTokensMembers = tableWithState(append(messagesCommon(), optionMembers...)...)

func messagesCommon() []rule {
	tools := toolTable(0,
		rule{Name: "name", Kinds: text},
		rule{Name: "description", Kinds: text},
		rule{Name: "input_schema", Kinds: object},
	)
	return []rule{
		modelMember,
		promptTemplate,
		{Name: "reasoning_effort", Deciding: true, Slot: slotReasoningEffort},
		messagesMember(tools, rule{Name: "content", Kinds: text | array, Elem: object, Required: true, Members: contentPart}),
		{Name: "system", Kinds: text | array, Elem: object, Members: contentPart},
		toolsMember(tools),
		{Name: "tool_choice", Kinds: object},
		{Name: "thinking", Kinds: object, Slot: slotThinking, Members: table(
			rule{Name: "type", Kinds: text, Deciding: true, Slot: slotThinkingType},
			rule{Name: "budget_tokens", Kinds: integer},
		)},
	}
}

// The members of docs/reference/calls.md#completions. A prompt is a text, or tokens, or
// an array of either.
var completionsMembers = bodyTable(append(completionsCommon(),
	textOrTokens("prompt"),
	rule{Name: "messages", Note: noteUnknown, Members: tableWithState(chatContent, rule{Name: "tools", Members: chatTools})}, // a member of /v1/chat/completions
	rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: math.MaxInt64, Deciding: true, Slot: slotMaxTokens},
	outputBound("max_completion_tokens"),
	rule{Name: "best_of", Kinds: integer, Min: 1, Deciding: true, Slot: slotBestOf},
	rule{Name: "suffix", Kinds: text},
	rule{Name: "echo", Kinds: boolean},
)...)

// The members of POST /v1/chat/completions that decide the route or the price.
var chatMembers = bodyTable(append(completionsCommon(),
	messagesMember(chatTools, chatContent),
	promptTemplate,
	rule{Name: "max_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxTokens},
	rule{Name: "max_completion_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxCompletionTokens},
	multiplier("best_of"),
)...)

// chatTools and chatContent are the tools and the content of messages of
// POST /v1/chat/completions. Its tools need a type, because routers treat
// {"google_search":{}} as a tool of the vendor.
var (
	chatTools   = toolTable(noteUntypedTool)
	chatContent = rule{Name: "content", Kinds: text | array, Elem: object, Members: contentPart}
)

// textOrTokens returns the rule for a member that has a text, tokens, or an array of either.
func textOrTokens(name string) rule {
	return rule{
		Name: name, Kinds: text | array, Elem: text | integer | array, Inner: integer, Required: true, Deciding: true,
		Slot: slotPrompt, Elements: slotPromptElements,
	}
}

func completionsCommon() []rule {
	return []rule{
		modelMember,
		streamMember,
		{Name: "reasoning_effort", Deciding: true, Slot: slotReasoningEffort},
		{Name: "thinking", Kinds: object | text | number | boolean | null, Slot: slotThinking, Members: table(rule{Name: "type", Deciding: true, Slot: slotThinkingType})},
		{Name: "n", Kinds: integer, Min: 1, Deciding: true, Slot: slotChoices},
		{Name: "temperature", Kinds: number},
		{Name: "top_p", Kinds: number},
		{Name: "stop", Kinds: text | array, Elem: text},
		toolsMember(chatTools),
		{Name: "stream_options", Kinds: object | null, Deciding: true, Slot: slotStreamOptions, Members: table(
			rule{Name: "include_usage", Kinds: boolean | null, Deciding: true, Slot: slotIncludeUsage},
		)},
	}
}

// promptTemplate is the rule for prompt on the routes whose input is messages. There the
// member names a template, which may have its own tools and model.
var promptTemplate = rule{Name: "prompt", Note: noteUnknown, Members: tableWithState(stateMember("id"))}

func toolsMember(members *strictjson.Table) rule {
	return rule{Name: "tools", Kinds: array, Elem: object, Slot: slotTools, Members: members}
}

func messagesMember(tools *strictjson.Table, content rule) rule {
	return rule{Name: "messages", Kinds: array, Elem: object, Required: true, Deciding: true, Members: messageTable(tools, content)}
}

// messageTable returns the rules for a message. SGLang accepts tools in a message.
func messageTable(tools *strictjson.Table, content rule) *strictjson.Table {
	// A rule for these common names saves the search for other spellings.
	rules := each(rule{}, "name", "tool_calls", "tool_call_id", "function_call", "refusal", "reasoning", "reasoning_content", "annotations")
	return tableWithState(slices.Concat(rules, mediaRules, []rule{
		{Name: "role", Kinds: text, Required: true},
		content,
		{Name: "tools", Members: tools},
		audioMember,
	})...)
}

// audioMember is the rule for the speech of an earlier answer in a message.
var audioMember = rule{Name: "audio", Kinds: object, AnySpelling: true, Members: tableWithState(
	append(media(noteAudioURL, stateTable, "url"), stateMember("id"), rule{Name: "data", Deciding: true, Note: noteAudioData})...,
)}
