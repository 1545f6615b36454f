package demo

import (
	"encoding/json"
	"fmt"
	"slices"
)

// chatRequest is the part of a chat request that is read.
type chatRequest struct {
	Model               string        `json:"model"`
	Messages            []message     `json:"messages"`
	MaxTokens           *int          `json:"max_tokens"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"` // goes before max_tokens
	N                   *int          `json:"n"`
	Stop                list          `json:"stop"`
	Stream              bool          `json:"stream"`
	StreamOptions       streamOptions `json:"stream_options"`
	Tools               []chatTool    `json:"tools"`
	ToolChoice          chatChooser   `json:"tool_choice"`
}

// chatTool is a tool; only those of type function are called.
type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// chatChooser is tool_choice: a word, or an object that names a function.
type chatChooser struct {
	word string
	name string
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *chatChooser) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &c.word)
	}
	var object struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	err := json.Unmarshal(data, &object)
	c.name = object.Function.Name
	return err
}

// chatRoles are the roles a message can have.
var chatRoles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// answerChat answers /v1/chat/completions.
func answerChat(body []byte) (*answer, error) {
	q := new(chatRequest)
	if err := decode(body, q); err != nil {
		return nil, err
	}
	n, err := q.check()
	if err != nil {
		return nil, err
	}
	r, err := rehearse(asked(q.Messages))
	if err != nil {
		return nil, err
	}
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	reply := q.compose(r, call)
	reply.n = n
	if n*reply.speech.size() > maxBody {
		return nil, invalid("n", "n: so many choices of this answer are larger than 32 MiB.")
	}
	reply.account = account{
		prompt:     q.promptTokens(),
		completion: n * len(reply.speech.pieces),
		cached:     r.cached,
		silent:     r.noUsage,
	}
	if q.Stream {
		reply.envelope = newEnvelope("chatcmpl-", "chat.completion.chunk", q.Model)
		reply.envelope.announce(q.StreamOptions)
		return &answer{rehearsal: r, events: reply.stream, pieces: n * len(reply.speech.pieces)}, nil
	}
	reply.envelope = newEnvelope("chatcmpl-", "chat.completion", q.Model)
	return &answer{rehearsal: r, whole: reply.whole()}, nil
}

// check refuses what the vendor would refuse, and returns the number of choices.
func (q *chatRequest) check() (n int, err error) {
	switch {
	case q.Model == "":
		return 0, missing("model")
	case len(q.Messages) == 0:
		return 0, missing("messages")
	case q.MaxCompletionTokens != nil && *q.MaxCompletionTokens < 1:
		return 0, invalid("max_completion_tokens", "max_completion_tokens: must be at least 1.")
	case q.MaxTokens != nil && *q.MaxTokens < 1:
		return 0, invalid("max_tokens", "max_tokens: must be at least 1.")
	}
	for i, m := range q.Messages {
		if !slices.Contains(chatRoles, m.Role) {
			return 0, invalid(fmt.Sprintf("messages.%d.role", i), "messages.%d.role: must be one of %q.", i, chatRoles)
		}
		if m.Content == nil && m.Role != "assistant" {
			return 0, missing(fmt.Sprintf("messages.%d.content", i))
		}
	}
	if err := checkStops("stop", q.Stop); err != nil {
		return 0, err
	}
	return choices(q.N, 1)
}

// call is the tool to be called, nil for none.
func (q *chatRequest) call() (*tool, error) {
	var tools []tool
	for _, t := range q.Tools {
		if t.Type == "function" {
			tools = append(tools, tool{t.Function.Name, t.Function.Parameters})
		}
	}
	t, err := choose(tools, q.ToolChoice.name, "tool_choice")
	if q.ToolChoice.word == "none" || q.answersTool() {
		t = nil
	}
	return t, err
}

// answersTool tells whether the last message is the result of a tool.
func (q *chatRequest) answersTool() bool {
	return q.Messages[len(q.Messages)-1].Role == "tool"
}

// compose decides what is said: a call, or words.
func (q *chatRequest) compose(r rehearsal, call *tool) *chatReply {
	limit := atMost(q.MaxTokens)
	if q.MaxCompletionTokens != nil {
		limit = *q.MaxCompletionTokens
	}
	if call != nil {
		if arguments := speak(call.arguments(), limit, nil); arguments.end == finished {
			arguments.end = calling
			return &chatReply{speech: arguments, call: call}
		}
	}
	said, fromTool := asked(q.Messages), q.answersTool()
	if fromTool {
		said = q.Messages[len(q.Messages)-1].Content.text()
	}
	return &chatReply{speech: speak(words(r, said, fromTool), limit, q.Stop)}
}

// promptTokens counts the text of messages and tools.
func (q *chatRequest) promptTokens() int {
	n := 0
	for _, m := range q.Messages {
		for _, b := range m.Content {
			n += tokens(b.Text)
		}
	}
	for _, t := range q.Tools {
		n += tokens(t.Function.Name) + tokens(t.Function.Description) + tokens(string(t.Function.Parameters))
	}
	return n
}

// chatReply is n choices of one speech, which is text or the arguments of a call.
type chatReply struct {
	envelope envelope
	speech   speech
	call     *tool
	n        int
	account  account
}

type (
	// chatChoice is a choice: whole, with a message, or a piece, with a delta.
	chatChoice struct {
		Index        int          `json:"index"`
		Message      *chatMessage `json:"message,omitempty"`
		Delta        *chatDelta   `json:"delta,omitempty"`
		Logprobs     *string      `json:"logprobs"` // there are none
		FinishReason *string      `json:"finish_reason"`
	}
	chatMessage struct {
		Role        string     `json:"role"`
		Content     *string    `json:"content"`
		Refusal     *string    `json:"refusal"`
		Annotations []any      `json:"annotations"`
		ToolCalls   []chatCall `json:"tool_calls,omitempty"`
	}
	chatDelta struct {
		Role      string     `json:"role,omitempty"`
		Content   *string    `json:"content,omitempty"`
		ToolCalls []chatCall `json:"tool_calls,omitempty"`
	}
	// chatCall is a call of a tool. Its index is of streams only, its id, type
	// and name come with the first piece.
	chatCall struct {
		Index    *int         `json:"index,omitempty"`
		ID       string       `json:"id,omitempty"`
		Type     string       `json:"type,omitempty"`
		Function chatFunction `json:"function"`
	}
	chatFunction struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
)

// whole is the chat completion as one JSON value.
func (c *chatReply) whole() any {
	all := make([]any, 0, c.n)
	text := c.speech.text()
	for i := range c.n {
		m := &chatMessage{Role: "assistant", Annotations: []any{}}
		if c.call != nil {
			m.ToolCalls = []chatCall{{ID: newID("call_"), Type: "function", Function: chatFunction{c.call.name, text}}}
		} else {
			m.Content = &text
		}
		all = append(all, chatChoice{Index: i, Message: m, FinishReason: completionsEndings[c.speech.end]})
	}
	return c.envelope.whole(all, c.account)
}

// stream sends the chat completion as events, the choices side by side.
func (c *chatReply) stream(s *stream) {
	for i := range c.n {
		s.event("", c.chunk(i, c.opening(), nil))
	}
	for _, piece := range c.speech.pieces {
		for i := range c.n {
			s.piece("", c.chunk(i, c.step(piece), nil))
		}
	}
	for i := range c.n {
		s.event("", c.chunk(i, &chatDelta{}, completionsEndings[c.speech.end]))
	}
	c.envelope.finish(s, c.account)
}

func (c *chatReply) chunk(index int, delta *chatDelta, end *string) envelope {
	return c.envelope.chunk(chatChoice{Index: index, Delta: delta, FinishReason: end})
}

// opening is how a choice begins.
func (c *chatReply) opening() *chatDelta {
	if c.call == nil {
		return &chatDelta{Role: "assistant", Content: new("")}
	}
	return &chatDelta{Role: "assistant", ToolCalls: []chatCall{{
		Index: new(0), ID: newID("call_"), Type: "function", Function: chatFunction{Name: c.call.name},
	}}}
}

// step is a piece of a choice.
func (c *chatReply) step(piece string) *chatDelta {
	if c.call == nil {
		return &chatDelta{Content: &piece}
	}
	return &chatDelta{ToolCalls: []chatCall{{Index: new(0), Function: chatFunction{Arguments: piece}}}}
}
