package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// request is the known part of a request, with the fields of all endpoints.
type request struct {
	Model    string    `json:"model"`
	Messages []message `json:"messages"`
	System   content   `json:"system"`
	Prompt   list      `json:"prompt"`

	MaxTokens           *int     `json:"max_tokens"`
	MaxCompletionTokens *int     `json:"max_completion_tokens"` // takes precedence over max_tokens
	Stop                list     `json:"stop"`
	StopSequences       []string `json:"stop_sequences"`
	N                   *int     `json:"n"`
	BestOf              *int     `json:"best_of"`
	Echo                bool     `json:"echo"`
	Logprobs            any      `json:"logprobs"`     // of chat a boolean, else ignored
	TopLogprobs         int      `json:"top_logprobs"` // of chat

	Tools      []toolRequest `json:"tools"`
	ToolChoice toolChoice    `json:"tool_choice"`
	Thinking   struct {
		Type string `json:"type"`
	} `json:"thinking"`
	CacheControl *cacheControl `json:"cache_control"`

	// Members of /v1/responses, /v1/embeddings, /v1/moderations, /v1/rerank and /v2/rerank.
	Input           json.RawMessage   `json:"input"`
	Instructions    string            `json:"instructions"`
	MaxOutputTokens *int              `json:"max_output_tokens"`
	Dimensions      int               `json:"dimensions"`
	EncodingFormat  string            `json:"encoding_format"`
	Query           string            `json:"query"`
	Documents       []json.RawMessage `json:"documents"`
	TopN            *int              `json:"top_n"`
	Store           *bool             `json:"store"`
	Background      json.RawMessage   `json:"background"` // of images: text
	Conversation    json.RawMessage   `json:"conversation"`
	tokenCounts     []int             // numbers of tokens of the prompts that are given as tokens

	PreviousResponseID string  `json:"previous_response_id"`
	vault              *vault  // nil: nothing is stored
	own                []entry // the items of the request itself
	body               []byte

	// Members of the endpoints of images and audio.
	Size           string            `json:"size"`
	Quality        string            `json:"quality"`
	PartialImages  int               `json:"partial_images"`
	Images         []json.RawMessage `json:"images"`
	ResponseFormat answerFormat      `json:"response_format"` // of chat, too
	StreamFormat   string            `json:"stream_format"`
	Granularities  list              `json:"timestamp_granularities"`
	files          map[string][]byte // of a form

	Text struct { // of responses
		Format answerFormat `json:"format"`
	} `json:"text"`
	OutputConfig struct { // of messages
		Format answerFormat `json:"format"`
	} `json:"output_config"`
	OutputFormat answerFormat `json:"output_format"` // of messages

	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// runsLater reports whether the request is for a response in the background.
func (q *request) runsLater() bool { return string(q.Background) == "true" }

// message is one turn of a conversation.
type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// block is one block of a message with the known fields of all types.
type block struct {
	Type         string        `json:"type"`
	Text         string        `json:"text"`
	CacheControl *cacheControl `json:"cache_control"`

	// Result is the content of a tool_result. It stays raw, because a recursive
	// type would be scanned once more for each level of nesting.
	Result json.RawMessage `json:"content"`
}

// cacheControl requests that the text up to here is cached.
type cacheControl struct {
	TTL string `json:"ttl"` // 5m (default) or 1h
}

// content is the content of a message: a string, or an array of blocks.
type content []block

// UnmarshalJSON implements json.Unmarshaler.
func (c *content) UnmarshalJSON(data []byte) (err error) {
	*c, err = oneOrMany(data, func(s string) block { return block{Type: "text", Text: s} })
	return err
}

// list is a string or an array of strings.
type list []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *list) UnmarshalJSON(data []byte) (err error) {
	*l, err = oneOrMany(data, func(s string) string { return s })
	return err
}

// oneOrMany decodes an array of items, or a string, which the function one converts
// to an item. Absent and null mean no items.
func oneOrMany[T any](data []byte, one func(string) T) ([]T, error) {
	switch {
	case len(data) == 0 || data[0] == 'n':
		return nil, nil
	case data[0] == '"':
		var s string
		err := json.Unmarshal(data, &s)
		return []T{one(s)}, err
	}
	many := []T{}
	err := json.Unmarshal(data, &many)
	return many, err
}

// text returns the text of all text blocks.
func (c content) text() string {
	var texts []string
	for _, b := range c {
		if b.Type == "text" && b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// result returns the content of a tool_result; content of another form counts as empty.
func (b block) result() content {
	c := content{}
	if json.Unmarshal(b.Result, &c) != nil || c == nil {
		return content{}
	}
	return c
}

// result returns the tool result of the message, if it has one.
func (m message) result() (text string, found bool) {
	if m.Role == "tool" {
		return m.Content.text(), true
	}
	var texts []string
	for _, b := range m.Content {
		if b.Type == "tool_result" {
			texts = append(texts, b.result().text())
		}
	}
	return strings.Join(texts, "\n"), texts != nil
}

// lastUserText returns the last text of a user.
func (q *request) lastUserText() string {
	for _, m := range slices.Backward(q.Messages) {
		if text := m.Content.text(); m.Role == "user" && text != "" {
			return text
		}
	}
	return ""
}

// answer decides on the answer to a request. Every error is a *refusal.
func (e endpoint) answer(contentType string, body []byte) (*answer, error) {
	q := &request{vault: e.vault}
	if isForm(contentType) {
		var err error
		if body, q.files, err = readForm(contentType, body); err != nil {
			return nil, invalid("", "The body is not a form: %v.", err)
		}
	}
	if err := json.Unmarshal(body, q); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return nil, invalid(wrong.Field, "%s: a value of kind %s is not allowed here.", wrong.Field, wrong.Value)
		}
		return nil, invalid("", "The body is not a JSON object of this endpoint: %v.", err)
	}
	if q.body = body; q.Model == "" {
		return nil, missing("model")
	}
	if e.prepare != nil {
		if err := e.prepare(q); err != nil {
			return nil, err
		}
	}
	texts := []string(q.Prompt)
	if e.roles != nil {
		if err := e.checkMessages(q.Messages); err != nil {
			return nil, err
		}
		texts = []string{q.lastUserText()}
	} else if len(q.Prompt) == 0 {
		return nil, missing("prompt")
	}
	for param, stops := range map[string][]string{"stop": q.Stop, "stop_sequences": q.StopSequences} {
		if at := slices.Index(stops, ""); at >= 0 { // every text contains the empty sequence
			return nil, invalid(fmt.Sprintf("%s.%d", param, at), "%s: a stop sequence must not be empty.", param)
		}
	}
	r, err := simulate(strings.Join(texts, "\n"))
	if err != nil {
		return nil, err
	}
	a, err := e.compose(q, r)
	if err != nil {
		return nil, err
	}
	if a.simulation = r; q.runsLater() {
		a.simulation.slow = 0 // the response is slow, not this answer
	}
	return a, nil
}

func (e endpoint) checkMessages(messages []message) error {
	if len(messages) == 0 {
		return missing("messages")
	}
	for i, m := range messages {
		if !slices.Contains(e.roles, m.Role) {
			return invalid(fmt.Sprintf("messages.%d.role", i), "messages.%d.role: must be one of %q.", i, e.roles)
		}
		if isCall := e.dialect == completionsDialect && m.Role == "assistant"; m.Content == nil && !isCall {
			return missing(fmt.Sprintf("messages.%d.content", i))
		}
	}
	return nil
}

// limit returns the limit on tokens of a request, or the maximum.
func (q *request) limit(least int) (int, error) {
	limit := maxPieces
	for _, set := range []struct {
		param string
		to    *int
	}{{"max_tokens", q.MaxTokens}, {"max_completion_tokens", q.MaxCompletionTokens}} {
		if set.to == nil {
			continue
		}
		if limit = *set.to; limit < least {
			return 0, invalid(set.param, "%s: must be at least %d.", set.param, least)
		}
	}
	return limit, nil
}

// input has the numbers of input tokens. Its kinds are disjoint, as in messages.
type input struct {
	fresh, cached5m, cached1h int
}

func (in input) total() int { return in.fresh + in.cached5m + in.cached1h }

// markCached counts the tokens so far as cached if c is set.
func (in *input) markCached(c *cacheControl) {
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

// input counts tools, system and messages, in the order in which a cache stores
// them.
func (q *request) input() (in input) {
	for _, t := range q.Tools {
		for _, text := range []string{t.Name, t.Description, string(t.InputSchema), t.Function.Name, t.Function.Description, string(t.Function.Parameters)} {
			in.fresh += tokens(text)
		}
		in.markCached(t.CacheControl)
	}
	for _, m := range append([]message{{Content: q.System}}, q.Messages...) {
		for _, b := range m.Content {
			in.fresh += tokens(b.Text) + tokens(b.result().text())
			in.markCached(b.CacheControl)
		}
	}
	in.markCached(q.CacheControl)
	return in
}
