package demo

import (
	"encoding/json"
	"slices"
	"time"
)

// readItems converts the input to messages, and the instructions to the system prompt.
func (q *request) readItems() error {
	items, err := oneOrMany(q.Input, func(text string) json.RawMessage { return encode(object{"role", "user", "content", text}) })
	if err != nil {
		return invalid("input", "input: must be a text or an array of items.")
	}
	if len(items) == 0 && q.PreviousResponseID == "" && q.conversationID() == "" {
		return missing("input")
	}
	for _, raw := range items {
		e, err := readItem(raw)
		if err != nil {
			return err
		}
		q.own = append(q.own, e)
	}
	if err := q.readEarlier(); err != nil {
		return err
	}
	q.Messages = append(q.Messages, messagesOf(q.own)...)
	if q.Instructions != "" {
		q.System = content{{Type: "text", Text: q.Instructions}}
	}
	for i := range q.Tools {
		if t := &q.Tools[i]; t.Type == "function" && t.Function.Name == "" {
			t.Function.Name, t.Function.Parameters = t.Name, t.Parameters
		}
	}
	if q.ToolChoice.Type == "function" && q.ToolChoice.Function.Name == "" {
		q.ToolChoice.Function.Name = q.ToolChoice.Name
	}
	q.MaxTokens, q.MaxCompletionTokens = nil, q.MaxOutputTokens
	return nil
}

// answerInputTokens answers /v1/responses/input_tokens.
func answerInputTokens(q *request, _ simulation) (*answer, error) {
	return &answer{whole: object{"object", "response.input_tokens", "input_tokens", q.input().total()}}, nil
}

// answerCompact answers /v1/responses/compact with the last text of the user, and with an item that the
// client may send in a later call.
func answerCompact(q *request, r simulation) (*answer, error) {
	s := response{request: q, simulation: r, output: generate(q.lastUserText(), maxPieces, nil)}
	message := object{"type", "message", "role", "user", "content", []object{{"type", "input_text", "text", s.output.text()}}}
	compaction := object{"type", "compaction", "id", newID("cmp_"), "encrypted_content", thinkingSignature}
	return &answer{whole: object{
		"id", newID("resp_"), "object", "response.compaction", "created_at", time.Now().Unix(), "output", []object{message, compaction}, "usage", s.usage(),
	}}, nil
}

// answerResponses answers /v1/responses with a function call or a message.
func answerResponses(q *request, r simulation) (*answer, error) {
	limit, err := q.limit(1)
	if err != nil {
		return nil, err
	}
	output, err := q.respond(r, limit, nil)
	if err != nil {
		return nil, err
	}
	s := &response{request: q, simulation: r, output: output, id: newID("resp_"), created: time.Now().Unix(), after: -1}
	s.settings = settingsOf(q.body)
	s.itemID, s.callID = newID("msg_"), newID("call_")
	if output.call != nil {
		s.itemID = newID("fc_")
	}
	s.keep()
	switch {
	case q.Stream:
		return &answer{events: s.stream, pieces: len(output.pieces)}, nil
	case q.runsLater():
		return &answer{whole: s.body("queued", nil, nil)}, nil
	}
	return &answer{whole: s.body(s.status(), []object{s.item("completed", output.text())}, s.usage())}, nil
}

// response is the answer to a responses request. Fields that the vendor's SDK requires are always
// present, null if they have no value.
type response struct {
	*request

	simulation         simulation
	output             generated
	id, itemID, callID string
	created            int64  // Unix seconds
	settings           object // members of the request that the response repeats
	sequence           int    // number of the next event
	after              int    // events up to this number are left out, if the stream is sent again
}

// status returns the status of the whole response.
func (s *response) status() string {
	if s.output.end == limited {
		return "incomplete"
	}
	return "completed"
}

// body returns the response as JSON.
func (s *response) body(status string, output []object, usage any) object {
	var incomplete any
	if status == "incomplete" {
		incomplete = object{"reason", "max_output_tokens"}
	}
	conversation := any(absent)
	if id := s.conversationID(); id != "" {
		conversation = object{"id", id}
	}
	return append(object{
		"id", s.id, "object", "response", "conversation", conversation, "created_at", s.created, "status", status, "background", s.runsLater(), "error", nil,
		"incomplete_details", incomplete, "model", s.Model, "output", append([]object{}, output...), "service_tier", "default",
		"store", s.vault != nil && (s.Store == nil || *s.Store), "usage", usage,
	}, s.settings...)
}

// repeatedMembers has the members that a response repeats from its request, each with its default.
var repeatedMembers = object{
	"instructions", nil, "max_output_tokens", nil, "max_tool_calls", nil, "metadata", object{}, "parallel_tool_calls", true,
	"previous_response_id", nil, "prompt", nil, "prompt_cache_key", nil, "prompt_cache_retention", nil, "reasoning", object{"effort", nil, "summary", nil},
	"safety_identifier", nil, "temperature", 1.0, "text", object{"format", object{"type", "text"}, "verbosity", "medium"},
	"tool_choice", "auto", "tools", []any{}, "top_logprobs", 0, "top_p", 1.0, "truncation", "disabled", "user", absent,
}

// settingsOf returns the members that the response to this request repeats.
func settingsOf(body []byte) object {
	var sent map[string]json.RawMessage
	_ = json.Unmarshal(body, &sent) // the body is known to be an object
	settings := slices.Clone(repeatedMembers)
	for i := 0; i < len(settings); i += 2 {
		if value := sent[settings[i].(string)]; len(value) > 0 && string(value) != "null" {
			settings[i+1] = value
		}
	}
	return settings
}

// item returns the only item of the output, with this status and text.
func (s *response) item(status, text string) object {
	if s.output.call != nil {
		return object{
			"id", s.itemID, "type", "function_call", "status", status, "arguments", text, "call_id", s.callID, "name", s.output.call.name,
		}
	}
	parts := []object{}
	if status != "in_progress" {
		parts = append(parts, outputText(text))
	}
	return object{"id", s.itemID, "type", "message", "status", status, "content", parts, "role", "assistant"}
}

// outputText returns a part of a message.
func outputText(text string) object {
	return object{"type", "output_text", "annotations", []any{}, "logprobs", []any{}, "text", text}
}

// usage returns the token usage in the vendor's form, or absent if it is not reported.
func (s *response) usage() any {
	if s.simulation.noUsage {
		return absent
	}
	input, output, cached := s.input().total(), len(s.output.pieces), 0
	if s.simulation.cached {
		cached = input
	}
	return object{
		"input_tokens", input, "input_tokens_details", object{"cached_tokens", cached},
		"output_tokens", output, "output_tokens_details", object{"reasoning_tokens", 0}, "total_tokens", input + output,
	}
}

// stream sends the response as events.
func (s *response) stream(to *sender) {
	event := func(send func(string, any), name string, members ...any) {
		if s.sequence > s.after {
			send(name, append(object{"type", name, "sequence_number", s.sequence}, members...))
		}
		s.sequence++
	}
	position := []any{"item_id", s.itemID, "output_index", 0}
	text, member := "response.output_text", "text"
	if s.output.call != nil {
		text, member = "response.function_call_arguments", "arguments"
	} else {
		position = append(position, "content_index", 0)
	}
	event(to.event, "response.created", "response", s.body("in_progress", nil, nil))
	event(to.event, "response.in_progress", "response", s.body("in_progress", nil, nil))
	event(to.event, "response.output_item.added", "output_index", 0, "item", s.item("in_progress", ""))
	if s.output.call == nil {
		event(to.event, "response.content_part.added", append(slices.Clone(position), "part", outputText(""))...)
	}
	for _, piece := range s.output.pieces {
		members := append(slices.Clone(position), "delta", piece)
		if s.output.call == nil {
			members = append(members, "logprobs", []any{})
		}
		event(to.piece, text+".delta", members...)
	}
	event(to.event, text+".done", append(slices.Clone(position), member, s.output.text())...)
	if s.output.call == nil {
		event(to.event, "response.content_part.done", append(slices.Clone(position), "part", outputText(s.output.text()))...)
	}
	item := s.item("completed", s.output.text())
	event(to.event, "response.output_item.done", "output_index", 0, "item", item)
	event(to.event, "response."+s.status(), "response", s.body(s.status(), []object{item}, s.usage()))
}
