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
	slotMaxTokens
	slotMaxCompletionTokens
	slotChoices
	slotBestOf
	slotStreamOptions
	slotIncludeUsage
	slots
)

// modelField and streamField stand in every table.
var (
	modelField  = rule{Name: "model", Kinds: text, Required: true, Deciding: true, Slot: slotModel}
	streamField = rule{Name: "stream", Kinds: boolean, Deciding: true, Slot: slotStream}
)

// The fields of POST /v1/messages, literal to the service document, section
// 4.7. Every other member passes untouched.
var messagesFields = table(append(messagesInput(),
	rule{Name: "max_tokens", Kinds: integer, Min: 1, Required: true, Deciding: true, Slot: slotMaxTokens},
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
	return []rule{
		modelField,
		{Name: "messages", Kinds: array, Elem: object, Required: true, Deciding: true, Members: table(
			rule{Name: "role", Kinds: text, Required: true},
			rule{Name: "content", Kinds: text | array, Elem: object, Required: true},
		)},
		{Name: "system", Kinds: text | array, Elem: object},
		{Name: "tools", Kinds: array, Elem: object, Members: table(
			rule{Name: "name", Kinds: text},
			rule{Name: "description", Kinds: text},
			rule{Name: "input_schema", Kinds: object},
		)},
		{Name: "tool_choice", Kinds: object},
		{Name: "thinking", Kinds: object, Members: table(
			rule{Name: "type", Kinds: text},
			rule{Name: "budget_tokens", Kinds: integer},
		)},
	}
}

// The fields of POST /v1/completions, literal to the service document, section
// 4.8; best_of and stream_options are not named there, but decide the price.
var completionsFields = table(append(completionsChoices(),
	rule{Name: "prompt", Kinds: text | array, Elem: text, Required: true, Deciding: true, Slot: slotPrompt},
	rule{Name: "max_tokens", Kinds: integer, Min: 0, Max: math.MaxInt64, Deciding: true, Slot: slotMaxTokens},
	rule{Name: "best_of", Kinds: integer, Min: 1, Deciding: true, Slot: slotBestOf},
	rule{Name: "suffix", Kinds: text},
	rule{Name: "echo", Kinds: boolean},
)...)

// The fields of POST /v1/chat/completions that are checked here: the ones that
// decide route or price.
var chatFields = table(append(completionsChoices(),
	rule{Name: "messages", Kinds: array, Elem: object, Required: true, Deciding: true, Members: table(
		rule{Name: "role", Kinds: text, Required: true},
		rule{Name: "content", Kinds: text | array, Elem: object},
	)},
	rule{Name: "max_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxTokens},
	rule{Name: "max_completion_tokens", Kinds: integer, Min: 1, Deciding: true, Slot: slotMaxCompletionTokens},
)...)

func completionsChoices() []rule {
	return []rule{
		modelField,
		streamField,
		{Name: "n", Kinds: integer, Min: 1, Deciding: true, Slot: slotChoices},
		{Name: "temperature", Kinds: number},
		{Name: "top_p", Kinds: number},
		{Name: "stop", Kinds: text | array, Elem: text},
		{Name: "stream_options", Kinds: object | null, Deciding: true, Slot: slotStreamOptions, Members: table(
			rule{Name: "include_usage", Kinds: boolean | null, Slot: slotIncludeUsage},
		)},
	}
}
