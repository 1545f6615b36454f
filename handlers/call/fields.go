package call

import (
	"math"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// Short words for the tables below.
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

// Where a scan records the fields that decide something here.
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
	slotThinkingType
	slotReasoningEffort
	slotTools
	slots
)

// modelField and streamField stand in every table.
var (
	modelField  = rule{Name: "model", Kinds: text, Required: true, Deciding: true, Slot: slotModel}
	streamField = rule{Name: "stream", Kinds: boolean, Deciding: true, Slot: slotStream}
)

// The fields of docs/reference/calls.md#messages, and those that decide the price.
// Every other member passes untouched where the call has no price.
var messagesFields = bodyFields(append(messagesInput(),
	rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: math.MaxInt64, Required: true, Deciding: true, Slot: slotMaxTokens},
	outputBound("max_completion_tokens"),
	multiplier("n"),
	multiplier("best_of"),
	streamField,
	rule{Name: "temperature", Kinds: number},
	rule{Name: "top_p", Kinds: number},
	rule{Name: "top_k", Kinds: integer},
	rule{Name: "stop_sequences", Kinds: array, Elem: text},
	rule{Name: "metadata", Kinds: object, Members: table(rule{Name: "user_id", Kinds: text})},
)...)

// countTokensFields are those of messages that have tokens to count. To count
// has no price.
var countTokensFields = stateful(append(messagesInput(), optionFields...)...)

func messagesInput() []rule {
	tools := toolFields(0,
		rule{Name: "name", Kinds: text},
		rule{Name: "description", Kinds: text},
		rule{Name: "input_schema", Kinds: object},
	)
	return []rule{
		modelField,
		promptTemplate,
		{Name: "reasoning_effort", Deciding: true, Slot: slotReasoningEffort},
		messagesField(tools, rule{Name: "content", Kinds: text | array, Elem: object, Required: true, Members: contentPart}),
		{Name: "system", Kinds: text | array, Elem: object, Members: contentPart},
		toolsField(tools),
		{Name: "tool_choice", Kinds: object},
		{Name: "thinking", Kinds: object, Members: table(
			rule{Name: "type", Kinds: text, Deciding: true, Slot: slotThinkingType},
			rule{Name: "budget_tokens", Kinds: integer},
		)},
	}
}

// The fields of docs/reference/calls.md#completions. A prompt is a text, or tokens, or
// an array of either.
var completionsFields = bodyFields(append(completionsChoices(),
	rule{
		Name: "prompt", Kinds: text | array, Elem: text | integer | array, Inner: integer, Required: true, Deciding: true,
		Slot: slotPrompt, Elements: slotPromptElements,
	},
	rule{Name: "messages", Note: noteOther, Members: stateful(chatContent, rule{Name: "tools", Members: chatTools})}, // of the other route
	rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: math.MaxInt64, Deciding: true, Slot: slotMaxTokens},
	outputBound("max_completion_tokens"),
	rule{Name: "best_of", Kinds: integer, Min: 1, Deciding: true, Slot: slotBestOf},
	rule{Name: "suffix", Kinds: text},
	rule{Name: "echo", Kinds: boolean},
)...)

// The fields of POST /v1/chat/completions that are checked here: the ones that
// decide route or price.
var chatFields = bodyFields(append(completionsChoices(),
	messagesField(chatTools, chatContent),
	promptTemplate,
	rule{Name: "max_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxTokens},
	rule{Name: "max_completion_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxCompletionTokens},
	multiplier("best_of"),
)...)

// chatTools and chatContent are the tools and the content of messages of
// POST /v1/chat/completions. Its tools need a type: routers read the name of a
// vendor's tool out of {"google_search":{}}.
var (
	chatTools   = toolFields(noteUntypedTool)
	chatContent = rule{Name: "content", Kinds: text | array, Elem: object, Members: contentPart}
)

func completionsChoices() []rule {
	return []rule{
		modelField,
		streamField,
		{Name: "reasoning_effort", Deciding: true, Slot: slotReasoningEffort},
		{Name: "thinking", Kinds: object | text | number | boolean | null, Members: table(rule{Name: "type", Deciding: true, Slot: slotThinkingType})},
		{Name: "n", Kinds: integer, Min: 1, Deciding: true, Slot: slotChoices},
		{Name: "temperature", Kinds: number},
		{Name: "top_p", Kinds: number},
		{Name: "stop", Kinds: text | array, Elem: text},
		toolsField(chatTools),
		{Name: "stream_options", Kinds: object | null, Deciding: true, Slot: slotStreamOptions, Members: table(
			rule{Name: "include_usage", Kinds: boolean | null, Slot: slotIncludeUsage},
		)},
	}
}

// promptTemplate is the rule for prompt where it is not the input of the route: it
// names a template, which may have tools and a model of its own.
var promptTemplate = rule{Name: "prompt", Note: noteOther, Members: stateful(kept("id"))}

func toolsField(members *strictjson.Table) rule {
	return rule{Name: "tools", Kinds: array, Elem: object, Slot: slotTools, Members: members}
}

func messagesField(tools *strictjson.Table, content rule) rule {
	return rule{Name: "messages", Kinds: array, Elem: object, Required: true, Deciding: true, Members: messageFields(tools, content)}
}

// messageFields are the rules for a message. SGLang takes tools in it.
func messageFields(tools *strictjson.Table, content rule) *strictjson.Table {
	return stateful(append([]rule{
		{Name: "role", Kinds: text, Required: true},
		content,
		{Name: "tools", Members: tools},
		{Name: "audio", Kinds: object, AnySpelling: true, Members: stateful(
			kept("id"), medium("url", noteAudioURL, keptMembers), rule{Name: "data", Deciding: true, Note: noteAudioData},
		)},
		// These are found, not folded.
		{Name: "name"}, {Name: "tool_calls"}, {Name: "tool_call_id"}, {Name: "function_call"},
		{Name: "refusal"}, {Name: "reasoning"}, {Name: "reasoning_content"}, {Name: "annotations"},
	}, mediaRules...)...)
}
