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
	slots
)

// modelField and streamField stand in every table.
var (
	modelField  = rule{Name: "model", Kinds: text, Required: true, Deciding: true, Slot: slotModel}
	streamField = rule{Name: "stream", Kinds: boolean, Deciding: true, Slot: slotStream}
)

// The fields of docs/reference/calls.md#messages, and those that decide the price. Every other member passes untouched.
var messagesFields = table(append(messagesInput(),
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

// countTokensFields are those of messages that have tokens to count.
var countTokensFields = table(messagesInput()...)

func messagesInput() []rule {
	return append(optionFields(),
		modelField,
		rule{Name: "reasoning_effort", Deciding: true, Slot: slotReasoningEffort},
		rule{Name: "messages", Kinds: array, Elem: object, Required: true, Deciding: true, Members: stateful(
			rule{Name: "role", Kinds: text, Required: true},
			rule{Name: "content", Kinds: text | array, Elem: object, Required: true, Members: contentPart},
		)},
		rule{Name: "system", Kinds: text | array, Elem: object, Members: contentPart},
		rule{Name: "tools", Kinds: array, Elem: object, Members: toolFields(
			rule{Name: "name", Kinds: text},
			rule{Name: "description", Kinds: text},
			rule{Name: "input_schema", Kinds: object},
		)},
		rule{Name: "tool_choice", Kinds: object},
		rule{Name: "thinking", Kinds: object, Members: table(
			rule{Name: "type", Kinds: text, Deciding: true, Slot: slotThinkingType},
			rule{Name: "budget_tokens", Kinds: integer},
		)},
	)
}

// The fields of docs/reference/calls.md#completions. A prompt is a text, or tokens, or
// an array of either.
var completionsFields = table(append(completionsChoices(),
	rule{
		Name: "prompt", Kinds: text | array, Elem: text | integer | array, Inner: integer, Required: true, Deciding: true,
		Slot: slotPrompt, Elements: slotPromptElements,
	},
	rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: math.MaxInt64, Deciding: true, Slot: slotMaxTokens},
	outputBound("max_completion_tokens"),
	rule{Name: "best_of", Kinds: integer, Min: 1, Deciding: true, Slot: slotBestOf},
	rule{Name: "suffix", Kinds: text},
	rule{Name: "echo", Kinds: boolean},
)...)

// The fields of POST /v1/chat/completions that are checked here: the ones that
// decide route or price.
var chatFields = table(append(completionsChoices(),
	rule{Name: "messages", Kinds: array, Elem: object, Required: true, Deciding: true, Members: stateful(
		rule{Name: "role", Kinds: text, Required: true},
		rule{Name: "content", Kinds: text | array, Elem: object, Members: contentPart},
		rule{Name: "audio", Kinds: object, Members: stateful(rule{Name: "id", Note: noteState, Deciding: true})},
	)},
	rule{Name: "prompt", Members: stateful(rule{Name: "id", Note: noteState, Deciding: true})},
	rule{Name: "max_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxTokens},
	rule{Name: "max_completion_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxCompletionTokens},
	multiplier("best_of"),
)...)

func completionsChoices() []rule {
	return append(optionFields(),
		modelField,
		streamField,
		rule{Name: "reasoning_effort", Deciding: true, Slot: slotReasoningEffort},
		rule{Name: "thinking", Kinds: object | text | number | boolean | null, Members: table(rule{Name: "type", Deciding: true, Slot: slotThinkingType})},
		rule{Name: "n", Kinds: integer, Min: 1, Deciding: true, Slot: slotChoices},
		rule{Name: "temperature", Kinds: number},
		rule{Name: "top_p", Kinds: number},
		rule{Name: "stop", Kinds: text | array, Elem: text},
		rule{Name: "tools", Kinds: array, Elem: object, Members: toolFields()},
		rule{Name: "stream_options", Kinds: object | null, Deciding: true, Slot: slotStreamOptions, Members: table(
			rule{Name: "include_usage", Kinds: boolean | null, Slot: slotIncludeUsage},
		)},
	)
}
