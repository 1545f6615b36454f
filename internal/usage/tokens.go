package usage

import "cmp"

// Tokens is the usage of a call by kind. The kinds are disjoint: each token has one kind,
// and each kind has its own price.
type Tokens struct {
	Input        int64 `json:"input,omitempty"`          // neither read from a cache nor written to one
	Output       int64 `json:"output,omitempty"`         // without Reasoning, AudioOutput and ImageOutput
	CacheRead    int64 `json:"cache_read,omitempty"`     // input read from a cache
	CacheWrite5m int64 `json:"cache_write_5m,omitempty"` // input written to a cache for 5 minutes
	CacheWrite1h int64 `json:"cache_write_1h,omitempty"` // input written to a cache for an hour
	Reasoning    int64 `json:"reasoning,omitempty"`      // output of reasoning, if it is reported separately
	AudioInput   int64 `json:"audio_input,omitempty"`    // input of audio, not read from a cache
	AudioOutput  int64 `json:"audio_output,omitempty"`   // output of audio
	ImageInput   int64 `json:"image_input,omitempty"`    // input of images, not read from a cache
	ImageOutput  int64 `json:"image_output,omitempty"`   // output of images
}

// maxFigure bounds every figure. It is the largest integer that a JSON number represents
// exactly in all languages. A larger figure is read as this one, which is far more than any
// call can use: the price then limits it and reports it.
const maxFigure = 1 << 53

// figure is a number in a usage object, by its meaning.
type figure uint8

const (
	// Of the input.
	inputTokens        figure = iota // messages: without cached tokens
	promptTokens                     // completions: with cached tokens
	cachedIncluded                   // read from a cache, counted in the input figure
	cacheWriteIncluded               // written to a cache, counted in the input figure
	cacheRead                        // messages: in addition to input_tokens
	cacheCreationTotal               // messages: in addition to input_tokens, both lifetimes
	cacheCreation5m                  // of cacheCreationTotal
	cacheCreation1h                  // of cacheCreationTotal
	audioInput                       // of the input figure, cached ones included
	imageInput                       // of the input figure, cached ones included
	audioCached                      // of audioInput
	imageCached                      // of imageInput

	// Of the output.
	outputTokens     // messages; reasoning included
	completionTokens // completions; reasoning included
	startOutput      // the output in a message_start
	reasoningTokens  // of the output figure
	audioOutput      // of the output figure
	imageOutput      // of the output figure
	totalTokens      // of both sides

	figureCount
	firstOutput = outputTokens
)

// figures has a value for every figure.
type figures struct {
	value    [figureCount]int64
	reported uint32 // a bit for each figure
}

func (f *figures) set(which figure, n int64) {
	f.value[which] = n
	f.reported |= 1 << which
}

func (f *figures) has(which figure) bool {
	return f.reported&(1<<which) != 0
}

// prefer returns own, or other if only other was reported. Some proxies write the members of
// both vendors, and set those of the other dialect to zero.
func (f *figures) prefer(own, other figure) figure {
	if f.has(own) || !f.has(other) {
		return own
	}
	return other
}

// tokens converts the figures to disjoint tokens, and reports which sides they contain. The
// names of the figures decide which figure includes which, not the dialect, because a backend
// may be behind a translating proxy. An included figure may be greater than the figure that
// includes it, because some vendors do not count reasoning in the output. Then the rest is
// zero. If messages is set, the names of messages take precedence over those of completions.
func (f *figures) tokens(messages bool) (t Tokens, input, output bool) {
	inputFigure, outputFigure := f.prefer(promptTokens, inputTokens), f.prefer(completionTokens, outputTokens)
	if messages {
		inputFigure, outputFigure = f.prefer(inputTokens, promptTokens), f.prefer(outputTokens, completionTokens)
	}

	t.CacheRead = max(f.value[cacheRead], f.value[cachedIncluded])
	t.CacheWrite5m, t.CacheWrite1h = f.value[cacheCreation5m], f.value[cacheCreation1h]
	created := max(f.value[cacheCreationTotal], f.value[cacheWriteIncluded])
	t.CacheWrite5m += max(0, created-t.CacheWrite5m-t.CacheWrite1h)

	cachedInput := f.value[cachedIncluded] + f.value[cacheWriteIncluded]
	if inputFigure == promptTokens {
		cachedInput = t.CacheRead + t.CacheWrite5m + t.CacheWrite1h
	}
	t.Input = max(0, f.value[inputFigure]-cachedInput)
	t.AudioInput, t.Input = split(t.Input, f.value[audioInput]-f.value[audioCached])
	t.ImageInput, t.Input = split(t.Input, f.value[imageInput]-f.value[imageCached])

	output = f.has(outputFigure)
	if !output {
		outputFigure = startOutput
	}
	t.Reasoning = f.value[reasoningTokens]
	t.Output = max(0, f.value[outputFigure]-t.Reasoning)
	// xAI and the OpenAI endpoint of Gemini leave reasoning out of completion_tokens, but
	// not out of total_tokens. Gemini does not report it separately.
	if extra := f.value[totalTokens] - t.AllInput() - f.value[outputFigure]; output && f.has(inputFigure) && extra > 0 && extra >= t.Reasoning {
		t.Output = f.value[outputFigure]
		t.Reasoning = cmp.Or(t.Reasoning, extra)
	}
	t.AudioOutput, t.Output = split(t.Output, f.value[audioOutput])
	t.ImageOutput, t.Output = split(t.Output, f.value[imageOutput])
	return t, f.has(inputFigure), output
}

// split divides total into n, or as much of n as there is, and the rest. Often a backend does
// not report how many tokens of a medium came from a cache. Then the total without cached
// tokens bounds the tokens that are charged as that medium.
func split(total, n int64) (part, rest int64) {
	part = min(max(n, 0), total)
	return part, total - part
}

// choices are the choices of a completion that were read, and those that are finished. If one
// has an index of 128 or more, only [DONE] ends the stream.
type choices struct {
	seen, finished [2]uint64
	tooMany        bool
}

func (c *choices) add(index int32, finished bool) {
	if index < 0 || index >= 128 {
		c.tooMany = true
		return
	}
	bit := uint64(1) << (index % 64)
	c.seen[index/64] |= bit
	if finished {
		c.finished[index/64] |= bit
	}
}

func (c *choices) allFinished() bool {
	return !c.tooMany && c.seen != [2]uint64{} && c.seen == c.finished
}
