package demo

import (
	"encoding/json"
	"time"
)

// maxChoices bounds n, best_of, and the choices of one answer.
const maxChoices = 128

// completionsEndings are the vendor's words for an ending.
var completionsEndings = map[ending]*string{
	finished: new("stop"),
	stopped:  new("stop"),
	limited:  new("length"),
	calling:  new("tool_calls"),
}

// envelope is what completions and chat put around their choices, in a JSON
// answer and in every chunk of a stream.
type envelope struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	SystemFingerprint string          `json:"system_fingerprint"`
	Choices           []any           `json:"choices"`
	Usage             json.RawMessage `json:"usage,omitempty"` // in chunks: null if announced, else absent
}

func newEnvelope(idPrefix, object, model string) envelope {
	return envelope{
		ID:                newID(idPrefix),
		Object:            object,
		Created:           time.Now().Unix(),
		Model:             model,
		SystemFingerprint: "fp_demo",
	}
}

// streamOptions are the options of a stream.
type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// announce prepares for a stream: if usage was asked for, every chunk holds a
// null for it until the last one, which holds nothing else.
func (e *envelope) announce(o streamOptions) {
	if o.IncludeUsage {
		e.Usage = json.RawMessage("null")
	}
}

// chunk is a chunk with one choice.
func (e envelope) chunk(choice any) envelope {
	e.Choices = []any{choice}
	return e
}

// whole is a JSON answer.
func (e envelope) whole(choices []any, a account) envelope {
	e.Choices = choices
	e.Usage = a.usage()
	return e
}

// finish ends a stream, with the usage if it was announced.
func (e envelope) finish(s *stream, a account) {
	if usage := a.usage(); usage != nil && e.Usage != nil {
		e.Choices, e.Usage = []any{}, usage
		s.event("", e)
	}
	s.write("", []byte("[DONE]"))
}

// account is the tokens of an answer and how they are reported.
type account struct {
	prompt, completion int
	cached             bool // the prompt was read from the cache
	silent             bool // no usage is reported
}

// usage is the vendor's account, nil when none is to be given.
func (a account) usage() json.RawMessage {
	if a.silent {
		return nil
	}
	var u struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
		PromptDetails    struct {
			CachedTokens int `json:"cached_tokens"`
			AudioTokens  int `json:"audio_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails struct {
			ReasoningTokens          int `json:"reasoning_tokens"`
			AudioTokens              int `json:"audio_tokens"`
			AcceptedPredictionTokens int `json:"accepted_prediction_tokens"`
			RejectedPredictionTokens int `json:"rejected_prediction_tokens"`
		} `json:"completion_tokens_details"`
	}
	u.PromptTokens, u.CompletionTokens, u.TotalTokens = a.prompt, a.completion, a.prompt+a.completion
	if a.cached {
		u.PromptDetails.CachedTokens = a.prompt
	}
	return encode(u)
}

// choices is how many choices of each of so many prompts n asks for.
func choices(n *int, prompts int) (int, error) {
	if prompts > maxChoices {
		return 0, invalid("prompt", "prompt: at most %d prompts are answered at once.", maxChoices)
	}
	if n == nil {
		return 1, nil
	}
	if *n < 1 || *n > maxChoices/prompts {
		return 0, invalid("n", "n: must be from 1 to %d.", maxChoices/prompts)
	}
	return *n, nil
}
