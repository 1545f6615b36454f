package call

import (
	. "github.com/caddy-modelgate/modelgate/internal/strictjson" //nolint:revive // the tables below read as what they are

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// route is one path on which model calls come in.
type route struct {
	name      string // in metrics and log lines
	path      string
	dialect   reply.Dialect
	shape     usage.Dialect // of the answers
	fields    *Table        // what the service document says of a body
	limit     int64         // of a body, in bytes
	versioned bool          // demands the version header
	free      bool          // passes through without being metered
	asksUsage bool          // a stream reports usage only when asked to

	metrics *caddymodule.RouteMetrics
}

// The routes of the two directives.
var (
	messagesRoutes = []*route{
		{
			name: "messages", path: "/v1/messages", dialect: reply.Messages, shape: usage.Messages,
			fields: messagesFields, limit: 32 << 20, versioned: true,
		},
		{
			name: "count_tokens", path: "/v1/messages/count_tokens", dialect: reply.Messages, shape: usage.Messages,
			fields: countTokensFields, limit: 32 << 20, versioned: true, free: true,
		},
	}
	completionsRoutes = []*route{
		{
			name: "completions", path: "/v1/completions", dialect: reply.Completions, shape: usage.Completions,
			fields: completionsFields, limit: 8 << 20, asksUsage: true,
		},
		{
			name: "chat", path: "/v1/chat/completions", dialect: reply.Completions, shape: usage.Completions,
			fields: chatFields, limit: 8 << 20, asksUsage: true,
		},
	}
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
	modelField  = Rule{Name: "model", Kinds: String, Required: true, Deciding: true, Slot: slotModel}
	streamField = Rule{Name: "stream", Kinds: Bool, Deciding: true, Slot: slotStream}
)

// The fields of POST /v1/messages, literal to the service document, section
// 4.7. Every other member passes untouched.
var messagesFields = NewTable(append(messagesInput(),
	Rule{Name: "max_tokens", Kinds: Integer, Min: 1, Required: true, Deciding: true, Slot: slotMaxTokens},
	streamField,
	Rule{Name: "temperature", Kinds: Number},
	Rule{Name: "top_p", Kinds: Number},
	Rule{Name: "top_k", Kinds: Integer},
	Rule{Name: "stop_sequences", Kinds: Array, Elem: String},
	Rule{Name: "metadata", Kinds: Object, Members: NewTable(Rule{Name: "user_id", Kinds: String})},
)...)

// countTokensFields are those of messages that have tokens to count.
var countTokensFields = NewTable(messagesInput()...)

func messagesInput() []Rule {
	return []Rule{
		modelField,
		{Name: "messages", Kinds: Array, Elem: Object, Required: true, Deciding: true, Members: NewTable(
			Rule{Name: "role", Kinds: String, Required: true},
			Rule{Name: "content", Kinds: String | Array, Elem: Object, Required: true},
		)},
		{Name: "system", Kinds: String | Array, Elem: Object},
		{Name: "tools", Kinds: Array, Elem: Object, Members: NewTable(
			Rule{Name: "name", Kinds: String},
			Rule{Name: "description", Kinds: String},
			Rule{Name: "input_schema", Kinds: Object},
		)},
		{Name: "tool_choice", Kinds: Object},
		{Name: "thinking", Kinds: Object, Members: NewTable(
			Rule{Name: "type", Kinds: String},
			Rule{Name: "budget_tokens", Kinds: Integer},
		)},
	}
}

// The fields of POST /v1/completions, literal to the service document, section
// 4.8; best_of and stream_options are not named there, but decide the price.
var completionsFields = NewTable(append(completionsChoices(),
	Rule{Name: "prompt", Kinds: String | Array, Elem: String, Required: true, Deciding: true, Slot: slotPrompt},
	Rule{Name: "max_tokens", Kinds: Integer, Min: 0, Max: maxInt, Deciding: true, Slot: slotMaxTokens},
	Rule{Name: "best_of", Kinds: Integer, Min: 1, Deciding: true, Slot: slotBestOf},
	Rule{Name: "suffix", Kinds: String},
	Rule{Name: "echo", Kinds: Bool},
)...)

// The fields of POST /v1/chat/completions that are checked here: the ones that
// decide route or price.
var chatFields = NewTable(append(completionsChoices(),
	Rule{Name: "messages", Kinds: Array, Elem: Object, Required: true, Deciding: true, Members: NewTable(
		Rule{Name: "role", Kinds: String, Required: true},
		Rule{Name: "content", Kinds: String | Array, Elem: Object},
	)},
	Rule{Name: "max_tokens", Kinds: Integer, Min: 1, Deciding: true, Slot: slotMaxTokens},
	Rule{Name: "max_completion_tokens", Kinds: Integer, Min: 1, Deciding: true, Slot: slotMaxCompletionTokens},
)...)

// maxInt is no bound at all, written where a lower bound of zero needs an upper.
const maxInt = 1<<63 - 1

func completionsChoices() []Rule {
	return []Rule{
		modelField,
		streamField,
		{Name: "n", Kinds: Integer, Min: 1, Deciding: true, Slot: slotChoices},
		{Name: "temperature", Kinds: Number},
		{Name: "top_p", Kinds: Number},
		{Name: "stop", Kinds: String | Array, Elem: String},
		{Name: "stream_options", Kinds: Object | Null, Deciding: true, Slot: slotStreamOptions, Members: NewTable(
			Rule{Name: "include_usage", Kinds: Bool, Slot: slotIncludeUsage},
		)},
	}
}
