package catalog

import (
	"cmp"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// TokenPrices are prices per million tokens, by kind.
type TokenPrices struct {
	// Input of no other kind.
	Input *money.Amount `json:"input,omitempty"`

	// Output of no other kind.
	Output *money.Amount `json:"output,omitempty"`

	// Input read from a cache. Default: as input.
	CacheRead *money.Amount `json:"cache_read,omitempty"`

	// Input written to a cache for five minutes. Default: as input.
	CacheWrite *money.Amount `json:"cache_write,omitempty"`

	// Input written to a cache for an hour. Default: as cache_write.
	CacheWrite1h *money.Amount `json:"cache_write_1h,omitempty"`

	// Output of reasoning, if a backend reports it. Default: as output.
	Reasoning *money.Amount `json:"reasoning,omitempty"`

	// Input of audio. Default: as input.
	AudioInput *money.Amount `json:"audio_input,omitempty"`

	// Output of audio. Default: as output. A call with audio is refused if
	// neither audio price is set.
	AudioOutput *money.Amount `json:"audio_output,omitempty"`

	// Input of images. Default: as input.
	ImageInput *money.Amount `json:"image_input,omitempty"`

	// Output of images. Without it, a call that requests images is refused.
	ImageOutput *money.Amount `json:"image_output,omitempty"`
}

// TokenWord is the option name of a kind of tokens, and its price.
type TokenWord struct {
	Word   string
	Amount **money.Amount
}

// Words returns the option names of all kinds with pointers to their prices in t.
func (t *TokenPrices) Words() [usage.Kinds]TokenWord {
	return [usage.Kinds]TokenWord{
		{"input", &t.Input},
		{"output", &t.Output},
		{"cache_read", &t.CacheRead},
		{"cache_write", &t.CacheWrite},
		{"cache_write_1h", &t.CacheWrite1h},
		{"reasoning", &t.Reasoning},
		{"audio_input", &t.AudioInput},
		{"audio_output", &t.AudioOutput},
		{"image_input", &t.ImageInput},
		{"image_output", &t.ImageOutput},
	}
}

func (t *TokenPrices) validate() error {
	for _, w := range t.Words() {
		if a := *w.Amount; a != nil && *a < 0 {
			return fmt.Errorf("%s is %v and must not be negative", w.Word, *a)
		}
	}
	return nil
}

// with returns t with the prices of by, where by sets them.
func (t TokenPrices) with(by *TokenPrices) TokenPrices {
	return TokenPrices{
		Input: cmp.Or(by.Input, t.Input), Output: cmp.Or(by.Output, t.Output), CacheRead: cmp.Or(by.CacheRead, t.CacheRead),
		CacheWrite: cmp.Or(by.CacheWrite, t.CacheWrite), CacheWrite1h: cmp.Or(by.CacheWrite1h, t.CacheWrite1h),
		Reasoning: cmp.Or(by.Reasoning, t.Reasoning), AudioInput: cmp.Or(by.AudioInput, t.AudioInput),
		AudioOutput: cmp.Or(by.AudioOutput, t.AudioOutput), ImageInput: cmp.Or(by.ImageInput, t.ImageInput),
		ImageOutput: cmp.Or(by.ImageOutput, t.ImageOutput),
	}
}

// rates are the prices of all kinds of tokens, by their index in
// [usage.Tokens.ByKind].
type rates [usage.Kinds]money.Rate

// rates returns the rates of t. A kind without a price has the rate of its
// parent.
func (t *TokenPrices) rates() (r rates) {
	r[usage.KindInput] = rateOr(t.Input, 0)
	r[usage.KindCacheRead] = rateOr(t.CacheRead, r[usage.KindInput])
	r[usage.KindCacheWrite5m] = rateOr(t.CacheWrite, r[usage.KindInput])
	r[usage.KindCacheWrite1h] = rateOr(t.CacheWrite1h, r[usage.KindCacheWrite5m])
	r[usage.KindAudioInput] = rateOr(t.AudioInput, r[usage.KindInput])
	r[usage.KindImageInput] = rateOr(t.ImageInput, r[usage.KindInput])
	r[usage.KindOutput] = rateOr(t.Output, 0)
	r[usage.KindReasoning] = rateOr(t.Reasoning, r[usage.KindOutput])
	r[usage.KindAudioOutput] = rateOr(t.AudioOutput, r[usage.KindOutput])
	r[usage.KindImageOutput] = rateOr(t.ImageOutput, r[usage.KindOutput])
	return r
}

func rateOr(own *money.Amount, parent money.Rate) money.Rate {
	if own == nil {
		return parent
	}
	return money.RateOf(*own)
}

// highest returns the highest rates of input and output that may apply to a call. The rates of media
// count only if the call has media.
func (r *rates) highest(audio, image, imageOut bool) (input, output money.Rate) {
	input = max(r[usage.KindInput], r[usage.KindCacheRead], r[usage.KindCacheWrite5m], r[usage.KindCacheWrite1h])
	output = max(r[usage.KindOutput], r[usage.KindReasoning])
	if audio {
		input, output = max(input, r[usage.KindAudioInput]), max(output, r[usage.KindAudioOutput])
	}
	if image || imageOut {
		input = max(input, r[usage.KindImageInput])
	}
	if imageOut {
		output = max(output, r[usage.KindImageOutput])
	}
	return input, output
}
