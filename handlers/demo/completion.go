package demo

import (
	"slices"
	"time"
)

// maxChoices is the maximum n, best_of, and number of choices of one answer.
const maxChoices = 128

// choices returns the number of choices for each prompt.
func (q *request) choices(prompts int) (int, error) {
	switch {
	case prompts > maxChoices:
		return 0, invalid("prompt", "prompt: at most %d prompts are allowed.", maxChoices)
	case q.N == nil:
		return 1, nil
	case *q.N < 1 || *q.N > maxChoices/prompts:
		return 0, invalid("n", "n: must be from 1 to %d.", maxChoices/prompts)
	}
	return *q.N, nil
}

// answerCompletions answers /v1/completions.
func answerCompletions(q *request, r simulation) (*answer, error) {
	q.MaxCompletionTokens = nil // a field of chat only
	limit, err := q.limit(0)
	if err != nil {
		return nil, err
	}
	n, err := q.choices(len(q.Prompt))
	if err != nil {
		return nil, err
	}
	attempts := n
	if q.BestOf != nil {
		attempts = *q.BestOf
	}
	switch {
	case attempts < n || attempts > maxChoices:
		return nil, invalid("best_of", "best_of: must be from n to %d.", maxChoices)
	case attempts > n && q.Stream:
		return nil, invalid("best_of", "best_of: must be equal to n in a stream.")
	}
	c := completion{request: q, simulation: r}
	for _, prompt := range q.Prompt {
		// The space separates the answer from the echoed prompt.
		s := generate(" "+answerText(r, prompt, false), limit, q.Stop)
		if q.Echo {
			s.echo = prompt
		}
		c.choices = append(c.choices, slices.Repeat([]generated{s}, n)...)
		c.prompt += tokens(prompt)
		c.output += attempts * len(s.pieces)
	}
	return c.answer("cmpl-", "text_completion", "text_completion")
}

// answerChat answers /v1/chat/completions.
func answerChat(q *request, r simulation) (*answer, error) {
	limit, err := q.limit(1)
	if err != nil {
		return nil, err
	}
	n, err := q.choices(1)
	if err != nil {
		return nil, err
	}
	s, err := q.respond(r, limit, q.Stop)
	if err != nil {
		return nil, err
	}
	c := completion{
		request: q, simulation: r, chat: true,
		choices: slices.Repeat([]generated{s}, n), prompt: q.input().total(), output: n * len(s.pieces),
	}
	return c.answer("chatcmpl-", "chat.completion", "chat.completion.chunk")
}

// completion is the answer to a completions or a chat request.
type completion struct {
	*request

	simulation     simulation
	chat           bool
	choices        []generated // by index
	prompt, output int         // tokens

	id, object string
	created    int64
}

// answer returns the completion as JSON or as a stream.
func (c *completion) answer(idPrefix, whole, chunk string) (*answer, error) {
	size, pieces := 0, 0
	for _, s := range c.choices {
		size += len(s.echo) + s.size()
		pieces += len(s.pieces)
	}
	if size > maxBody {
		return nil, invalid("n", "n: the choices together are larger than 32 MiB.")
	}
	c.id, c.created, c.object = newID(idPrefix), time.Now().Unix(), whole
	if c.Stream {
		c.object = chunk
		return &answer{events: c.stream, pieces: pieces}, nil
	}
	choices := make([]object, len(c.choices))
	for i, s := range c.choices {
		content := any(s.echo + s.text())
		if c.chat {
			content = c.message(s)
		}
		choices[i] = c.choice(i, "message", content, completionsEndings[s.end], s.content(0, len(s.pieces))...)
	}
	return &answer{whole: c.body(c.usage(), choices...)}, nil
}

// completionsEndings has the vendor's names of endings.
var completionsEndings = map[ending]any{finished: "stop", stopped: "stop", limited: "length", calling: "tool_calls"}

// stream sends the completion as events, with the choices interleaved.
func (c *completion) stream(s *sender) {
	var usage any = absent // in a chunk; if usage was requested, null except in the last chunk
	if c.StreamOptions.IncludeUsage {
		usage = nil
	}
	chunk := func(index int, content, end any, pieces ...string) object {
		return c.body(usage, c.choice(index, "delta", content, end, pieces...))
	}
	longest := 0
	for i, choice := range c.choices {
		longest = max(longest, len(choice.pieces))
		switch {
		case c.chat && choice.call != nil:
			call := object{"index", 0, "id", newID("call_"), "type", "function", "function", object{"name", choice.call.name, "arguments", ""}}
			s.event("", chunk(i, object{"role", "assistant", "tool_calls", []object{call}}, nil))
		case c.chat:
			s.event("", chunk(i, object{"role", "assistant", "content", ""}, nil))
		case choice.echo != "":
			s.event("", chunk(i, choice.echo, nil))
		}
	}
	for k := range longest {
		for i, choice := range c.choices {
			if k < len(choice.pieces) {
				s.piece("", chunk(i, c.step(choice, choice.pieces[k]), nil, choice.content(k, k+1)...))
			}
		}
	}
	for i, choice := range c.choices {
		s.event("", chunk(i, c.step(choice, ""), completionsEndings[choice.end]))
	}
	if last := c.usage(); usage == nil && last != absent {
		s.event("", c.body(last))
	}
	s.write("", []byte("[DONE]"))
}

// step returns a piece of a choice in a stream; the empty piece ends the choice.
func (c *completion) step(of generated, piece string) any {
	switch {
	case !c.chat:
		return piece
	case piece == "":
		return object{}
	case of.call != nil:
		return object{"tool_calls", []object{{"index", 0, "function", object{"arguments", piece}}}}
	}
	return object{"content", piece}
}

// message returns a choice of chat as a message.
func (c *completion) message(s generated) object {
	content, calls := any(s.text()), any(absent)
	if s.call != nil {
		content, calls = nil, []object{{"id", newID("call_"), "type", "function", "function", object{"name", s.call.name, "arguments", s.text()}}}
	}
	return object{"role", "assistant", "content", content, "refusal", nil, "annotations", []any{}, "tool_calls", calls}
}

// choice returns one choice. For chat, member is the name of its content, whose pieces have logprobs.
func (c *completion) choice(index int, member string, content, end any, pieces ...string) object {
	if c.chat {
		return object{"index", index, member, content, "logprobs", c.logprobs(pieces), "finish_reason", end}
	}
	return object{"text", content, "index", index, "logprobs", nil, "finish_reason", end}
}

// logprob is the logarithm of the probability of every token.
const logprob = -0.1

// logprobs returns the log probabilities of pieces, or nil if the request does not ask for them. A token
// has no alternatives.
func (c *completion) logprobs(pieces []string) any {
	if c.Logprobs != true || len(pieces) == 0 {
		return nil
	}
	list := make([]object, len(pieces))
	for i, piece := range pieces {
		codes := make([]int, len(piece)) // a []byte would be encoded in Base64
		for k := range codes {
			codes[k] = int(piece[k])
		}
		token := object{"token", piece, "bytes", codes, "logprob", logprob}
		list[i] = slices.Concat(token, object{"top_logprobs", slices.Repeat([]object{token}, min(max(c.TopLogprobs, 0), 1))})
	}
	return object{"content", list, "refusal", nil}
}

// body returns a JSON answer or a chunk with these choices.
func (c *completion) body(usage any, choices ...object) object {
	return object{
		"id", c.id, "object", c.object, "created", c.created, "model", c.Model, "system_fingerprint", "fp_demo",
		"choices", append([]object{}, choices...), "usage", usage,
	}
}

// usage returns the token usage in the vendor's form, or absent if it is not
// reported.
func (c *completion) usage() any {
	if c.simulation.noUsage {
		return absent
	}
	cached := 0
	if c.simulation.cached {
		cached = c.prompt
	}
	return object{
		"prompt_tokens", c.prompt, "completion_tokens", c.output, "total_tokens", c.prompt + c.output,
		"prompt_tokens_details", object{"cached_tokens", cached, "audio_tokens", 0},
		"completion_tokens_details", object{"reasoning_tokens", 0, "audio_tokens", 0, "accepted_prediction_tokens", 0, "rejected_prediction_tokens", 0},
	}
}
