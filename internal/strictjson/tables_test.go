package strictjson

// These tables are for tests. They have the members of a messages call and of a completions
// call in docs/reference/calls.md, with those that affect the price.

const (
	_ = iota // the body
	slotModel
	slotMaxTokens
	slotStream
	slotUser
	slotBudget
	slotSystem
	messagesFields
)

var messagesTable = NewTable(
	Rule{Name: "model", Kinds: String, Required: true, Deciding: true, Slot: slotModel},
	Rule{Name: "messages", Kinds: Array, Elem: Object, Required: true, Members: NewTable(
		Rule{Name: "role", Kinds: String, Required: true},
		Rule{Name: "content", Kinds: String | Array, Elem: Object, Required: true},
	)},
	Rule{Name: "system", Kinds: String | Array, Elem: Object, Slot: slotSystem},
	Rule{Name: "max_tokens", Kinds: Integer, Required: true, Deciding: true, Min: 1, Slot: slotMaxTokens},
	Rule{Name: "temperature", Kinds: Number},
	Rule{Name: "top_p", Kinds: Number},
	Rule{Name: "top_k", Kinds: Integer},
	Rule{Name: "stream", Kinds: Bool, Deciding: true, Slot: slotStream},
	Rule{Name: "stop_sequences", Kinds: Array, Elem: String},
	Rule{Name: "tools", Kinds: Array, Elem: Object, Members: NewTable(
		Rule{Name: "name", Kinds: String},
		Rule{Name: "description", Kinds: String},
		Rule{Name: "input_schema", Kinds: Object},
	)},
	Rule{Name: "tool_choice", Kinds: Object},
	Rule{Name: "thinking", Kinds: Object, Members: NewTable(
		Rule{Name: "type", Kinds: String},
		Rule{Name: "budget_tokens", Kinds: Integer, Deciding: true, Slot: slotBudget},
	)},
	Rule{Name: "metadata", Kinds: Object, Members: NewTable(
		Rule{Name: "user_id", Kinds: String, Slot: slotUser},
	)},
)

const (
	_ = iota // the body
	slotCModel
	slotPrompt
	slotN
	slotStop
	slotOptions
	slotIncludeUsage
	slotGrid
	slotTokens
	slotElements
	completionsFields
)

var completionsTable = NewTable(
	Rule{Name: "model", Kinds: String, Required: true, Deciding: true, Slot: slotCModel},
	Rule{Name: "prompt", Kinds: String | Array, Elem: String, Required: true, Deciding: true, Slot: slotPrompt},
	Rule{Name: "n", Kinds: Integer, Deciding: true, Min: 1, Max: 128, Slot: slotN},
	Rule{Name: "stop", Kinds: String | Array, Elem: String, Slot: slotStop},
	Rule{Name: "stream_options", Kinds: Object, Slot: slotOptions, Members: NewTable(
		Rule{Name: "include_usage", Kinds: Bool, Deciding: true, Slot: slotIncludeUsage},
	)},
	Rule{Name: "seed", Kinds: Integer},
	Rule{Name: "nullable", Kinds: Bool | Null},
	Rule{Name: "grid", Kinds: Array, Elem: Array | Number, Slot: slotGrid},
	Rule{Name: "tokens", Kinds: Array, Elem: String | Integer | Array, Inner: Integer, Slot: slotTokens, Elements: slotElements},
	Rule{Name: "tier", Kinds: String, Note: noteTier},
	Rule{Name: "parts", Kinds: Array | Object, Elem: Object | String, Members: NewTable(
		Rule{Name: "type", Kinds: String, Deciding: true, Note: noteType, Usual: []string{"text", "tool"}},
		Rule{Name: "source", Kinds: Object | String, Members: NewTable(
			Rule{Name: "url", Note: noteURL},
		).With(commonTable)},
	).With(commonTable)},
)

var commonTable = NewTable(
	Rule{Name: "kept", Note: noteURL},
	Rule{Name: "file_id", Kinds: String | Object, AnySpelling: true, Note: noteTier, Members: NewTable(Rule{Name: "url", Note: noteURL})},
)

// The notes of completionsTable.
const (
	_ = iota
	noteTier
	noteType
	noteURL
)
