package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The calls and their answers have the form and size of real ones. They contain
// nothing random: each run sends the same bytes.

const model = "claude-sonnet-4-5"

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// question is the body of a call, with its fields in the order of the vendor's
// libraries.
type question struct {
	MaxTokens   int       `json:"max_tokens"`
	Messages    []message `json:"messages"`
	Model       string    `json:"model"`
	System      string    `json:"system"`
	Temperature float64   `json:"temperature"`
	Stream      bool      `json:"stream,omitempty"`
}

// smallBody returns a body of about 1 KB: a short conversation.
func smallBody(stream bool) []byte {
	return marshal(question{
		MaxTokens: 1024, Model: model, Temperature: 0.7, Stream: stream,
		System: prose(200),
		Messages: []message{
			{"user", prose(150)}, {"assistant", prose(280)}, {"user", prose(120)},
		},
	})
}

// largeBody returns a body of about 200 KB in so many messages.
func largeBody(messages int) []byte {
	const size = 200 << 10
	q := question{MaxTokens: 4096, Model: model, Temperature: 0.7, System: prose(200)}
	for i := range messages {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		q.Messages = append(q.Messages, message{role, prose(size/messages - 36)})
	}
	return marshal(q)
}

// prose returns about n bytes of text like that of prompts: words, with some
// quotations, line breaks and letters that are not ASCII.
func prose(n int) string {
	const paragraph = "The gateway reads a call once, decides, and lets it pass; what the backend answers " +
		"goes back as it comes. \"Nothing is held,\" said the reviewer, \"that need not be.\"\n" +
		"if (tokens > limit) { return refuse(call); } // naïve, but enough for a café\n"
	return strings.Repeat(paragraph, n/len(paragraph)+1)[:n]
}

// answerJSON is the answer of about 1 KB to a call that is not streamed.
var answerJSON = marshal(map[string]any{
	"id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "model": model,
	"content":     []any{map[string]any{"type": "text", "text": prose(640)}},
	"stop_reason": "end_turn", "stop_sequence": nil,
	"usage": map[string]any{
		"input_tokens": 212, "output_tokens": 163, "service_tier": "standard",
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 1024,
		"cache_creation": map[string]any{"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
	},
})

// Events of a streamed answer: the first, and the one that repeats, of about
// 150 bytes.
var (
	eventStart = event("message_start", map[string]any{"type": "message_start", "message": map[string]any{
		"id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "model": model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": map[string]any{"input_tokens": 212, "output_tokens": 1, "cache_read_input_tokens": 1024},
	}})
	eventDelta = event("content_block_delta", map[string]any{
		"type": "content_block_delta", "index": 0,
		"delta": map[string]any{"type": "text_delta", "text": prose(24)},
	})
)

func event(name string, data any) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, marshal(data))
}

// marshal writes JSON as most clients do: without escapes for HTML.
func marshal(v any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // the values here cannot fail to marshal
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
