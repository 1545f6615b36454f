package demo

import (
	"cmp"
	"encoding/json"
)

// answerCountTokens answers /v1/messages/count_tokens.
func answerCountTokens(q *request, _ simulation) (*answer, error) {
	return &answer{whole: object{"input_tokens", q.input().total()}}, nil
}

// answerMessages answers /v1/messages: thinking, then a tool call or text.
func answerMessages(q *request, r simulation) (*answer, error) {
	if q.MaxTokens == nil {
		return nil, missing("max_tokens")
	}
	q.MaxCompletionTokens = nil // a field of chat only
	left, err := q.limit(1)
	if err != nil {
		return nil, err
	}
	m := &messagesReply{model: q.Model, simulation: r, input: q.input()}
	if q.Thinking.Type == "enabled" || q.Thinking.Type == "adaptive" {
		thought := generate("The user wants an answer. I shall repeat what I was told.", left, nil)
		m.parts, m.thought = []part{{thought, "thinking", ""}}, len(thought.pieces)
		left -= m.thought
	}
	if m.last, err = q.respond(r, left, q.StopSequences); err != nil {
		return nil, err
	}
	switch {
	case m.last.call != nil:
		m.parts = append(m.parts, part{m.last, "tool_use", newID("toolu_")})
	case len(m.last.pieces) > 0:
		m.parts = append(m.parts, part{m.last, "text", ""})
	}
	if q.Stream {
		return &answer{events: m.stream, pieces: m.pieces()}, nil
	}
	content := []object{}
	for _, p := range m.parts {
		content = append(content, p.block(p.text(), thinkingSignature))
	}
	return &answer{whole: m.body(content, messagesEndings[m.last.end], orNull(m.last.stop), m.pieces())}, nil
}

// messagesReply is the answer to a messages request. Fields that the vendor's SDK
// requires are always present, null if they have no value.
type messagesReply struct {
	model      string
	simulation simulation
	input      input
	parts      []part
	thought    int       // pieces of thinking
	last       generated // the last part, even if it is empty
}

// part is one block of a reply.
type part struct {
	generated

	kind string // text, thinking or tool_use
	id   string // of a tool_use
}

// thinkingSignature replaces the vendor's signature.
const thinkingSignature = "bW9kZWxnYXRlIGRlbW8="

// messagesEndings has the vendor's names of endings.
var messagesEndings = map[ending]any{finished: "end_turn", limited: "max_tokens", stopped: "stop_sequence", calling: "tool_use"}

// block returns the block with a part of its text; the empty text begins a
// stream.
func (p part) block(text, signature string) object {
	switch p.kind {
	case "thinking":
		return object{"type", p.kind, "thinking", text, "signature", signature}
	case "tool_use":
		text = cmp.Or(text, "{}")
		return object{"type", p.kind, "id", p.id, "name", p.call.name, "input", json.RawMessage(text), "caller", object{"type", "direct"}}
	}
	return object{"type", p.kind, "text", text}
}

// step returns a piece of the block.
func (p part) step(piece string) object {
	switch p.kind {
	case "thinking":
		return object{"type", "thinking_delta", "thinking", piece}
	case "tool_use":
		return object{"type", "input_json_delta", "partial_json", piece}
	}
	return object{"type", "text_delta", "text", piece}
}

// pieces returns the number of pieces of all parts, which is the output.
func (m *messagesReply) pieces() (n int) {
	for _, p := range m.parts {
		n += len(p.generated.pieces)
	}
	return n
}

// body returns the message as JSON. output is the number of output tokens.
func (m *messagesReply) body(content []object, reason, sequence any, output int) object {
	return object{
		"id", newID("msg_"), "type", "message", "role", "assistant", "model", m.model, "content", content,
		"stop_reason", reason, "stop_sequence", sequence, "stop_details", nil, "container", nil, "diagnostics", nil,
		"usage", m.usage(output),
	}
}

// usage returns the token usage in the vendor's form, or absent if it is not
// reported.
func (m *messagesReply) usage(output int) any {
	if m.simulation.noUsage {
		return absent
	}
	in := m.input
	written, read := in.cached5m+in.cached1h, 0
	if m.simulation.cached {
		written, read = 0, written
		in.cached5m, in.cached1h = 0, 0
	}
	return object{
		"input_tokens", in.fresh, "cache_creation_input_tokens", written, "cache_read_input_tokens", read,
		"cache_creation", object{"ephemeral_5m_input_tokens", in.cached5m, "ephemeral_1h_input_tokens", in.cached1h},
		"output_tokens", max(1, output), // the vendor reports at least one
		"output_tokens_details", object{"thinking_tokens", min(output, m.thought)},
		"server_tool_use", nil, "service_tier", "standard", "speed", "standard", "inference_geo", nil,
	}
}

// stream sends the message as events.
func (m *messagesReply) stream(s *sender) {
	s.event("message_start", object{"type", "message_start", "message", m.body([]object{}, nil, nil, 0)})
	s.event("ping", object{"type", "ping"})
	for i, p := range m.parts {
		step := func(delta object) object { return object{"type", "content_block_delta", "index", i, "delta", delta} }
		s.event("content_block_start", object{"type", "content_block_start", "index", i, "content_block", p.block("", "")})
		for _, piece := range p.generated.pieces {
			s.piece("content_block_delta", step(p.step(piece)))
		}
		if p.kind == "thinking" {
			s.event("content_block_delta", step(object{"type", "signature_delta", "signature", thinkingSignature}))
		}
		s.event("content_block_stop", object{"type", "content_block_stop", "index", i})
	}
	delta := object{"stop_reason", messagesEndings[m.last.end], "stop_sequence", orNull(m.last.stop), "stop_details", nil, "container", nil}
	s.event("message_delta", object{"type", "message_delta", "delta", delta, "usage", m.usage(m.pieces())})
	s.event("message_stop", object{"type", "message_stop"})
}
