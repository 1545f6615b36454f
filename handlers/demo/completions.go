package demo

// completionsRequest is the part of a completions request that is read.
type completionsRequest struct {
	Model         string        `json:"model"`
	Prompt        list          `json:"prompt"`
	MaxTokens     *int          `json:"max_tokens"`
	N             *int          `json:"n"`
	BestOf        *int          `json:"best_of"`
	Stop          list          `json:"stop"`
	Echo          bool          `json:"echo"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
}

// answerCompletions answers /v1/completions.
func answerCompletions(body []byte) (*answer, error) {
	q := new(completionsRequest)
	if err := decode(body, q); err != nil {
		return nil, err
	}
	switch {
	case q.Model == "":
		return nil, missing("model")
	case len(q.Prompt) == 0:
		return nil, missing("prompt")
	case q.MaxTokens != nil && *q.MaxTokens < 0:
		return nil, invalid("max_tokens", "max_tokens: must not be negative.")
	}
	if err := checkStops("stop", q.Stop); err != nil {
		return nil, err
	}
	n, err := choices(q.N, len(q.Prompt))
	if err != nil {
		return nil, err
	}
	tried := n
	if q.BestOf != nil {
		tried = *q.BestOf
	}
	switch {
	case tried < n || tried > maxChoices:
		return nil, invalid("best_of", "best_of: must be from n to %d.", maxChoices)
	case tried > n && q.Stream:
		return nil, invalid("best_of", "best_of: what is not known to be best cannot be streamed.")
	}
	r, err := q.rehearse()
	if err != nil {
		return nil, err
	}
	reply := &completionsReply{n: n, account: account{cached: r.cached, silent: r.noUsage}}
	for _, prompt := range q.Prompt {
		// The space parts the answer from an echo of the prompt.
		c := continuation{speech: speak(" "+words(r, prompt, false), atMost(q.MaxTokens), q.Stop)}
		if q.Echo {
			c.echo = prompt
		}
		reply.continuations = append(reply.continuations, c)
		reply.account.prompt += tokens(prompt)
		reply.account.completion += tried * len(c.speech.pieces)
	}
	if reply.bytes() > maxBody {
		return nil, invalid("n", "n: so many choices of this prompt are larger than 32 MiB.")
	}
	reply.envelope = newEnvelope("cmpl-", "text_completion", q.Model)
	if q.Stream {
		reply.envelope.announce(q.StreamOptions)
		return &answer{rehearsal: r, events: reply.stream, pieces: reply.pieces()}, nil
	}
	return &answer{rehearsal: r, whole: reply.whole()}, nil
}

// rehearse reads the words in all prompts.
func (q *completionsRequest) rehearse() (rehearsal, error) {
	var text []byte
	for _, prompt := range q.Prompt {
		text = append(text, prompt...)
		text = append(text, '\n')
	}
	return rehearse(string(text))
}

// continuation is what follows a prompt.
type continuation struct {
	echo   string // the prompt, if it is to be repeated
	speech speech
}

// completionsReply is n choices of each continuation.
type completionsReply struct {
	envelope      envelope
	continuations []continuation
	n             int
	account       account
}

// textChoice is a choice, whole or a piece of it.
type textChoice struct {
	Text         string  `json:"text"`
	Index        int     `json:"index"`
	Logprobs     *string `json:"logprobs"` // there are none
	FinishReason *string `json:"finish_reason"`
}

// each calls do for every choice, in the order of their index: all of the first
// prompt, then all of the second.
func (c *completionsReply) each(do func(index int, of continuation)) {
	for i, of := range c.continuations {
		for k := range c.n {
			do(i*c.n+k, of)
		}
	}
}

// bytes is how much text the choices hold.
func (c *completionsReply) bytes() (n int) {
	c.each(func(_ int, of continuation) { n += len(of.echo) + of.speech.size() })
	return n
}

// pieces counts the pieces of all choices.
func (c *completionsReply) pieces() (n int) {
	c.each(func(_ int, of continuation) { n += len(of.speech.pieces) })
	return n
}

// whole is the completion as one JSON value.
func (c *completionsReply) whole() any {
	var all []any
	c.each(func(index int, of continuation) {
		all = append(all, textChoice{
			Text:         of.echo + of.speech.text(),
			Index:        index,
			FinishReason: completionsEndings[of.speech.end],
		})
	})
	return c.envelope.whole(all, c.account)
}

// stream sends the completion as events: the choices side by side, as they
// would be made.
func (c *completionsReply) stream(s *stream) {
	chunk := c.envelope.chunk
	longest := 0
	c.each(func(index int, of continuation) {
		longest = max(longest, len(of.speech.pieces))
		if of.echo != "" {
			s.event("", chunk(textChoice{Text: of.echo, Index: index}))
		}
	})
	for i := range longest {
		c.each(func(index int, of continuation) {
			if i < len(of.speech.pieces) {
				s.piece("", chunk(textChoice{Text: of.speech.pieces[i], Index: index}))
			}
		})
	}
	c.each(func(index int, of continuation) {
		s.event("", chunk(textChoice{Index: index, FinishReason: completionsEndings[of.speech.end]}))
	})
	c.envelope.finish(s, c.account)
}
