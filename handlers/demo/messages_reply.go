package demo

import "encoding/json"

// messagesReply is a message as it is sent. Fields the vendor's SDK calls
// required are always there, null where there is nothing to say.
type messagesReply struct {
	model  string
	parts  []part
	end    ending
	stop   string // the stop sequence that came up
	input  messagesInput
	cached bool // the cache was read, not written
	silent bool // no usage is reported
}

// part is one block of a reply, in the pieces in which it is streamed.
type part struct {
	kind     string // text, thinking or tool_use
	id, name string // of a tool_use
	speech   speech
}

// thinkingSignature stands where the vendor signs its thoughts.
const thinkingSignature = "bW9kZWxnYXRlIGRlbW8="

// messagesEndings are the vendor's words for an ending.
var messagesEndings = map[ending]string{
	finished: "end_turn",
	limited:  "max_tokens",
	stopped:  "stop_sequence",
	calling:  "tool_use",
}

type (
	textBlock struct {
		Type      string  `json:"type"`
		Text      string  `json:"text"`
		Citations *string `json:"citations"` // there are none
	}
	thinkingBlock struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	toolUseBlock struct {
		Type   string          `json:"type"`
		ID     string          `json:"id"`
		Name   string          `json:"name"`
		Input  json.RawMessage `json:"input"`
		Caller typed           `json:"caller"`
	}
	// typed is an object with a type and nothing else.
	typed struct {
		Type string `json:"type"`
	}
	// delta is a step of a block; a type of step uses one of the other fields.
	delta struct {
		Type        string `json:"type"`
		Text        string `json:"text,omitempty"`
		Thinking    string `json:"thinking,omitempty"`
		Signature   string `json:"signature,omitempty"`
		PartialJSON string `json:"partial_json,omitempty"`
	}
)

// whole is the block in a JSON answer.
func (p part) whole() any {
	switch text := p.speech.text(); p.kind {
	case "thinking":
		return thinkingBlock{p.kind, text, thinkingSignature}
	case "tool_use":
		return toolUseBlock{p.kind, p.id, p.name, json.RawMessage(text), typed{"direct"}}
	default:
		return textBlock{Type: p.kind, Text: text}
	}
}

// opening is the block as its stream begins.
func (p part) opening() any {
	switch p.kind {
	case "thinking":
		return thinkingBlock{Type: p.kind}
	case "tool_use":
		return toolUseBlock{p.kind, p.id, p.name, json.RawMessage("{}"), typed{"direct"}}
	default:
		return textBlock{Type: p.kind}
	}
}

// step is the event of a piece.
func (p part) step(piece string) delta {
	switch p.kind {
	case "thinking":
		return delta{Type: "thinking_delta", Thinking: piece}
	case "tool_use":
		return delta{Type: "input_json_delta", PartialJSON: piece}
	default:
		return delta{Type: "text_delta", Text: piece}
	}
}

// messageBody is a message as JSON, and the beginning of its stream.
type messageBody struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`
	Role         string         `json:"role"`
	Model        string         `json:"model"`
	Content      []any          `json:"content"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	StopDetails  *string        `json:"stop_details"`
	Container    *string        `json:"container"`
	Diagnostics  *string        `json:"diagnostics"`
	Usage        *messagesUsage `json:"usage,omitempty"`
}

// messagesUsage is the vendor's account of a message.
type messagesUsage struct {
	InputTokens              int `json:"input_tokens"`
	CacheCreationInputTokens int `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int `json:"cache_read_input_tokens"`
	CacheCreation            struct {
		Ephemeral5m int `json:"ephemeral_5m_input_tokens"`
		Ephemeral1h int `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	OutputTokens        int `json:"output_tokens"`
	OutputTokensDetails struct {
		ThinkingTokens int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
	ServerToolUse *string `json:"server_tool_use"`
	ServiceTier   string  `json:"service_tier"`
	Speed         string  `json:"speed"`
	InferenceGeo  *string `json:"inference_geo"`
}

// usage is the account of the message when output tokens of it have been said,
// nil when none is to be given.
func (m *messagesReply) usage(output int) *messagesUsage {
	if m.silent {
		return nil
	}
	u := &messagesUsage{
		InputTokens:  m.input.fresh,
		OutputTokens: max(1, output), // the vendor counts from one, also when nothing is said
		ServiceTier:  "standard",
		Speed:        "standard",
	}
	for _, p := range m.parts {
		if p.kind == "thinking" {
			u.OutputTokensDetails.ThinkingTokens = min(output, len(p.speech.pieces))
		}
	}
	if m.cached {
		u.CacheReadInputTokens = m.input.cached5m + m.input.cached1h
		return u
	}
	u.CacheCreationInputTokens = m.input.cached5m + m.input.cached1h
	u.CacheCreation.Ephemeral5m, u.CacheCreation.Ephemeral1h = m.input.cached5m, m.input.cached1h
	return u
}

// pieces counts the pieces of all parts: what is streamed, and what is output.
func (m *messagesReply) pieces() int {
	n := 0
	for _, p := range m.parts {
		n += len(p.speech.pieces)
	}
	return n
}

// beginning is the message before anything is said.
func (m *messagesReply) beginning() messageBody {
	return messageBody{
		ID:      newID("msg_"),
		Type:    "message",
		Role:    "assistant",
		Model:   m.model,
		Content: []any{},
		Usage:   m.usage(0),
	}
}

// ended returns stop_reason and stop_sequence.
func (m *messagesReply) ended() (reason, sequence *string) {
	reason = new(messagesEndings[m.end])
	if m.end == stopped {
		sequence = &m.stop
	}
	return reason, sequence
}

// whole is the message as one JSON value.
func (m *messagesReply) whole() any {
	body := m.beginning()
	for _, p := range m.parts {
		body.Content = append(body.Content, p.whole())
	}
	body.StopReason, body.StopSequence = m.ended()
	body.Usage = m.usage(m.pieces())
	return body
}

// stream sends the message as events.
func (m *messagesReply) stream(s *stream) {
	s.event("message_start", struct {
		Type    string      `json:"type"`
		Message messageBody `json:"message"`
	}{"message_start", m.beginning()})
	s.event("ping", typed{"ping"})
	for i, p := range m.parts {
		p.stream(s, i)
	}
	end := messageEnd{Type: "message_delta", Usage: m.usage(m.pieces())}
	end.Delta.StopReason, end.Delta.StopSequence = m.ended()
	s.event(end.Type, end)
	s.event("message_stop", typed{"message_stop"})
}

// messageEnd is the event that tells how a message ended and what it took.
type messageEnd struct {
	Type  string `json:"type"`
	Delta struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
		StopDetails  *string `json:"stop_details"`
		Container    *string `json:"container"`
	} `json:"delta"`
	Usage *messagesUsage `json:"usage,omitempty"`
}

// stream sends the block that has this index.
func (p part) stream(s *stream, index int) {
	type step struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Delta delta  `json:"delta"`
	}
	s.event("content_block_start", struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Block any    `json:"content_block"`
	}{"content_block_start", index, p.opening()})
	for _, piece := range p.speech.pieces {
		s.piece("content_block_delta", step{"content_block_delta", index, p.step(piece)})
	}
	if p.kind == "thinking" {
		s.event("content_block_delta", step{"content_block_delta", index, delta{Type: "signature_delta", Signature: thinkingSignature}})
	}
	s.event("content_block_stop", struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}{"content_block_stop", index})
}
