package usage

import "github.com/caddy-modelgate/modelgate/internal/dialect"

// Tokens is the usage of a call by kind. The kinds are disjoint: each token is
// in one of them, and each is priced by itself.
type Tokens struct {
	Input        int64 `json:"input,omitempty"`          // read afresh, neither from nor into a cache
	Output       int64 `json:"output,omitempty"`         // written, without Reasoning
	CacheRead    int64 `json:"cache_read,omitempty"`     // input taken from a cache
	CacheWrite5m int64 `json:"cache_write_5m,omitempty"` // input written to a cache for 5 minutes
	CacheWrite1h int64 `json:"cache_write_1h,omitempty"` // input written to a cache for an hour
	Reasoning    int64 `json:"reasoning,omitempty"`      // written while thinking, where that is told apart
	AudioInput   int64 `json:"audio_input,omitempty"`    // read as audio, and not from a cache
	AudioOutput  int64 `json:"audio_output,omitempty"`   // written as audio
	ImageInput   int64 `json:"image_input,omitempty"`    // read as images, and not from a cache
	ImageOutput  int64 `json:"image_output,omitempty"`   // written as images
}

// maxFigure bounds every figure: the largest integer that survives a JSON
// number in all languages. A larger one is read as this, for the caller to cut
// and to raise an alarm over.
const maxFigure = 1 << 53

// figure is one number of a usage object, by what it means.
type figure uint8

const (
	// Of the input.
	inputTokens   figure = iota // messages: without the cache kinds
	promptTokens                // completions: cache kinds included
	cachedInside                // read from a cache, counted in the input figure
	writtenInside               // written to a cache, counted in the input figure
	cacheRead                   // messages: beside input_tokens
	cacheCreated                // messages: beside input_tokens, both lifetimes
	created5m                   // of cacheCreated
	created1h                   // of cacheCreated
	audioInput                  // of the input figure, cached ones included
	imageInput                  // of the input figure, cached ones included
	audioCached                 // of audioInput
	imageCached                 // of imageInput

	// Of the output.
	outputTokens     // messages; reasoning included
	completionTokens // completions; reasoning included
	openingTokens    // the output a message_start names
	reasoningTokens  // of the output figure
	audioOutput      // of the output figure
	imageOutput      // of the output figure
	totalTokens      // of both sides

	figureCount
	firstOutput = outputTokens
)

// figures holds a value of every figure.
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

// either returns own, or other where only that was reported. Some proxies
// write the names of both vendors and leave those of the other dialect zero.
func (f *figures) either(own, other figure) figure {
	if f.has(own) || !f.has(other) {
		return own
	}
	return other
}

// tokens makes the figures disjoint. Which vendor's names came decides what
// contains what, not the dialect: a backend may sit behind a translating proxy.
// A part that claims more than its whole is believed and leaves nothing of the
// whole, since some vendors count their reasoning beside the output.
func (f *figures) tokens(d dialect.Dialect) (t Tokens, input, output bool) {
	whole, written := f.either(promptTokens, inputTokens), f.either(completionTokens, outputTokens)
	if d == dialect.Anthropic {
		whole, written = f.either(inputTokens, promptTokens), f.either(outputTokens, completionTokens)
	}

	t.CacheRead = max(f.value[cacheRead], f.value[cachedInside])
	t.CacheWrite5m, t.CacheWrite1h = f.value[created5m], f.value[created1h]
	created := max(f.value[cacheCreated], f.value[writtenInside])
	t.CacheWrite5m += max(0, created-t.CacheWrite5m-t.CacheWrite1h)

	inside := f.value[cachedInside] + f.value[writtenInside]
	if whole == promptTokens {
		inside = t.CacheRead + t.CacheWrite5m + t.CacheWrite1h
	}
	t.Input = max(0, f.value[whole]-inside)
	t.AudioInput, t.Input = part(f.value[audioInput]-f.value[audioCached], t.Input)
	t.ImageInput, t.Input = part(f.value[imageInput]-f.value[imageCached], t.Input)

	output = f.has(written)
	if !output {
		written = openingTokens
	}
	t.Reasoning = f.value[reasoningTokens]
	t.Output = max(0, f.value[written]-t.Reasoning)
	// xAI and the OpenAI endpoint of Gemini leave reasoning out of completion_tokens, but
	// not out of total_tokens. Gemini does not name it apart, either.
	if beside := f.value[totalTokens] - t.AllInput() - f.value[written]; output && f.has(whole) && beside > 0 && beside >= t.Reasoning {
		t.Output = f.value[written]
		if t.Reasoning == 0 {
			t.Reasoning = beside
		}
	}
	t.AudioOutput, t.Output = part(f.value[audioOutput], t.Output)
	t.ImageOutput, t.Output = part(f.value[imageOutput], t.Output)
	return t, f.has(whole), output
}

// part takes n tokens out of a whole, as many as it has. Which of the tokens of a
// medium came from a cache is often not reported: then what is left of the whole
// bounds the part that is charged as that medium.
func part(n, whole int64) (taken, rest int64) {
	taken = min(max(n, 0), whole)
	return taken, whole - taken
}

// choices follows which choices of a completion came and which are finished.
// Those from 128 on are not told apart; then only the stream's own end mark is
// an end.
type choices struct {
	seen, finished [2]uint64
	beyond         bool
}

func (c *choices) add(index int32, finished bool) {
	if index < 0 || index >= 128 {
		c.beyond = true
		return
	}
	bit := uint64(1) << (index % 64)
	c.seen[index/64] |= bit
	if finished {
		c.finished[index/64] |= bit
	}
}

func (c *choices) allFinished() bool {
	return !c.beyond && c.seen != [2]uint64{} && c.seen == c.finished
}
