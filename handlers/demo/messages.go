package demo

import (
	"encoding/json"
	"fmt"
)

// messagesRequest is the part of a messages request that is read.
type messagesRequest struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	System        content        `json:"system"`
	MaxTokens     *int           `json:"max_tokens"`
	Stream        bool           `json:"stream"`
	StopSequences []string       `json:"stop_sequences"`
	Tools         []messagesTool `json:"tools"`
	ToolChoice    struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"tool_choice"`
	Thinking struct {
		Type string `json:"type"`
	} `json:"thinking"`
	CacheControl *cacheControl `json:"cache_control"`
}

// message is one turn of a conversation, in either dialect.
type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// messagesTool is a tool. One without a schema is run by the vendor and is not
// ours to call.
type messagesTool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *cacheControl   `json:"cache_control"`
}

// decodeMessages reads what a message and the counting of its tokens share.
func decodeMessages(body []byte) (*messagesRequest, rehearsal, error) {
	q := new(messagesRequest)
	if err := decode(body, q); err != nil {
		return nil, rehearsal{}, err
	}
	switch {
	case q.Model == "":
		return nil, rehearsal{}, missing("model")
	case len(q.Messages) == 0:
		return nil, rehearsal{}, missing("messages")
	}
	for i, m := range q.Messages {
		if m.Role != "user" && m.Role != "assistant" {
			return nil, rehearsal{}, invalid(fmt.Sprintf("messages.%d.role", i), "messages.%d.role: must be user or assistant.", i)
		}
		if m.Content == nil {
			return nil, rehearsal{}, missing(fmt.Sprintf("messages.%d.content", i))
		}
	}
	r, err := rehearse(asked(q.Messages))
	return q, r, err
}

// asked is the last text a user wrote.
func asked(messages []message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if m := messages[i]; m.Role == "user" {
			if text := m.Content.text(); text != "" {
				return text
			}
		}
	}
	return ""
}

// answerCountTokens answers /v1/messages/count_tokens.
func answerCountTokens(body []byte) (*answer, error) {
	q, r, err := decodeMessages(body)
	if err != nil {
		return nil, err
	}
	whole := struct {
		InputTokens int `json:"input_tokens"`
	}{q.input().total()}
	return &answer{rehearsal: r, whole: whole}, nil
}

// answerMessages answers /v1/messages.
func answerMessages(body []byte) (*answer, error) {
	q, r, err := decodeMessages(body)
	if err != nil {
		return nil, err
	}
	if q.MaxTokens == nil {
		return nil, missing("max_tokens")
	}
	if *q.MaxTokens < 1 {
		return nil, invalid("max_tokens", "max_tokens: must be at least 1.")
	}
	if err := checkStops("stop_sequences", q.StopSequences); err != nil {
		return nil, err
	}
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	reply := q.compose(r, call)
	reply.input = q.input()
	reply.cached, reply.silent = r.cached, r.noUsage
	if q.Stream {
		return &answer{rehearsal: r, events: reply.stream, pieces: reply.pieces()}, nil
	}
	return &answer{rehearsal: r, whole: reply.whole()}, nil
}

// call is the tool to be called, nil for none.
func (q *messagesRequest) call() (*tool, error) {
	var tools []tool
	for _, t := range q.Tools {
		if t.InputSchema != nil {
			tools = append(tools, tool{t.Name, t.InputSchema})
		}
	}
	name := ""
	if q.ToolChoice.Type == "tool" {
		name = q.ToolChoice.Name
	}
	t, err := choose(tools, name, "tool_choice.name")
	_, answered := q.Messages[len(q.Messages)-1].Content.result()
	if answered || q.ToolChoice.Type == "none" {
		t = nil
	}
	return t, err
}

// compose decides what is said: thoughts, then a call or words.
func (q *messagesRequest) compose(r rehearsal, call *tool) *messagesReply {
	reply := &messagesReply{model: q.Model}
	left := *q.MaxTokens
	if q.Thinking.Type == "enabled" || q.Thinking.Type == "adaptive" {
		thought := speak("The user wants an answer. I shall repeat what I was told.", left, nil)
		reply.parts = append(reply.parts, part{kind: "thinking", speech: thought})
		left -= len(thought.pieces)
	}
	if call != nil {
		if arguments := speak(call.arguments(), left, nil); arguments.end == finished {
			reply.parts = append(reply.parts, part{kind: "tool_use", id: newID("toolu_"), name: call.name, speech: arguments})
			reply.end = calling
			return reply
		}
	}
	said, fromTool := q.Messages[len(q.Messages)-1].Content.result()
	if !fromTool {
		said = asked(q.Messages)
	}
	speech := speak(words(r, said, fromTool), left, q.StopSequences)
	if len(speech.pieces) > 0 {
		reply.parts = append(reply.parts, part{kind: "text", speech: speech})
	}
	reply.end, reply.stop = speech.end, speech.stop
	return reply
}

// messagesInput is the input in tokens, its kinds disjoint as this dialect
// reports them.
type messagesInput struct {
	fresh, cached5m, cached1h int
}

func (in messagesInput) total() int { return in.fresh + in.cached5m + in.cached1h }

// keep moves the tokens so far to the cache where c asks for it.
func (in *messagesInput) keep(c *cacheControl) {
	switch {
	case c == nil:
		return
	case c.TTL == "1h":
		in.cached1h += in.fresh
	default:
		in.cached5m += in.fresh
	}
	in.fresh = 0
}

// input counts tools, system and messages, in the order in which a cache holds
// them.
func (q *messagesRequest) input() messagesInput {
	var in messagesInput
	for _, t := range q.Tools {
		in.fresh += tokens(t.Name) + tokens(t.Description) + tokens(string(t.InputSchema))
		in.keep(t.CacheControl)
	}
	blocks := func(c content) {
		for _, b := range c {
			in.fresh += tokens(b.Text) + tokens(b.resultText())
			in.keep(b.CacheControl)
		}
	}
	blocks(q.System)
	for _, m := range q.Messages {
		blocks(m.Content)
	}
	in.keep(q.CacheControl)
	return in
}
