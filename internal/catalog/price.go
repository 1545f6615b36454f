package catalog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/money"
)

// Price is what calls of the models it names cost, in the configured currency.
// A call costs its tokens by kind and the price per request; a generated image
// or second has prices of its own.
type Price struct {
	// The models: an exact name, or a prefix and `*`. An exact name goes before
	// a prefix, a longer prefix before a shorter one. Of images and videos one that
	// begins with neither `image-` nor `video-` names what follows these.
	Model Pattern `json:"model"`

	// Per million tokens of input that is neither read from a cache nor written
	// to one. A price per token names both input and output; `0` is free.
	Input *money.Amount `json:"input,omitempty"`

	// Per million tokens of output.
	Output *money.Amount `json:"output,omitempty"`

	// Per million tokens of input read from a cache. Default: as input.
	CacheRead *money.Amount `json:"cache_read,omitempty"`

	// Per million tokens of input written to a cache for five minutes.
	// Default: as input.
	CacheWrite *money.Amount `json:"cache_write,omitempty"`

	// Per million tokens of input written to a cache for an hour.
	// Default: as cache_write.
	CacheWrite1h *money.Amount `json:"cache_write_1h,omitempty"`

	// Per million tokens of output spent on reasoning, where a backend tells it
	// apart. Default: as output.
	Reasoning *money.Amount `json:"reasoning,omitempty"`

	// Per call or generation that is charged at all, beside its tokens, images or
	// seconds. Default: nothing.
	Request money.Amount `json:"request,omitzero"`

	// How many tokens of input one prompt can have. Required with a price per
	// token that is not zero: the greatest price of a call is reserved before it.
	Context int64 `json:"context,omitempty"`

	// How many tokens of output one answer can have. Required as context is.
	MaxOutput int64 `json:"max_output,omitempty"`

	// Per generated image, by resolution.
	Image []Variant `json:"image,omitempty"`

	// Per generated second of video, by resolution and sound.
	Second []Variant `json:"second,omitempty"`
}

// MaxTokens bounds the context and the max_output of a price.
const MaxTokens = 1_000_000_000

// Variant is a price of one image or second.
type Variant struct {
	// The resolution it holds for, in any case: 1080P. Default: those that no
	// other variant names.
	Resolution string `json:"resolution,omitempty"`

	// Whether it holds for video with sound only. One that is not for sound only
	// holds for video with sound too, unless there is another for it at the same
	// resolution.
	Audio bool `json:"audio,omitempty"`

	// In the configured currency.
	Price money.Amount `json:"price"`
}

// rates are the prices of all kinds of tokens, each kind without a price of its
// own at that of its parent.
type rates struct {
	input, cacheRead, cacheWrite5m, cacheWrite1h money.Rate
	output, reasoning                            money.Rate
}

func (p *Price) rates() rates {
	var r rates
	r.input = rateOr(p.Input, 0)
	r.cacheRead = rateOr(p.CacheRead, r.input)
	r.cacheWrite5m = rateOr(p.CacheWrite, r.input)
	r.cacheWrite1h = rateOr(p.CacheWrite1h, r.cacheWrite5m)
	r.output = rateOr(p.Output, 0)
	r.reasoning = rateOr(p.Reasoning, r.output)
	return r
}

func rateOr(own *money.Amount, parent money.Rate) money.Rate {
	if own == nil {
		return parent
	}
	return money.RateOf(*own)
}

func (r rates) dearestInput() money.Rate {
	return max(r.input, r.cacheRead, r.cacheWrite5m, r.cacheWrite1h)
}

func (r rates) dearestOutput() money.Rate { return max(r.output, r.reasoning) }

// Validate refuses a price by which some call could not be reserved for or
// charged: one that is negative, that counts tokens without bounding them, or
// by which a single call would leave the range of an amount.
func (p *Price) Validate() error {
	if _, err := ParsePattern(string(p.Model)); err != nil {
		return fmt.Errorf("price: %w", err)
	}
	if err := errors.Join(p.validateTokens(), validateVariants("image", p.Image), validateVariants("second", p.Second)); err != nil {
		return fmt.Errorf("price %s: %w", p.Model, err)
	}
	return nil
}

func (p *Price) validateTokens() error {
	perToken := false
	for _, kind := range []struct {
		word   string
		amount *money.Amount
	}{
		{"input", p.Input},
		{"output", p.Output},
		{"cache_read", p.CacheRead},
		{"cache_write", p.CacheWrite},
		{"cache_write_1h", p.CacheWrite1h},
		{"reasoning", p.Reasoning},
	} {
		if kind.amount == nil {
			continue
		}
		if *kind.amount < 0 {
			return fmt.Errorf("%s is %v and must not be negative", kind.word, *kind.amount)
		}
		perToken = true
	}
	r := p.rates()
	switch {
	case p.Request < 0:
		return fmt.Errorf("request is %v and must not be negative", p.Request)
	case p.Context < 0 || p.Context > MaxTokens || p.MaxOutput < 0 || p.MaxOutput > MaxTokens:
		return fmt.Errorf("context and max_output are from 1 to %d tokens", MaxTokens)
	case !perToken && p.Request == 0 && len(p.Image) == 0 && len(p.Second) == 0:
		return errors.New("it names no price: give input and output, request, image or second; input 0 and output 0 are free")
	case perToken && (p.Input == nil || p.Output == nil):
		return errors.New("a price per token names input and output; write 0 for the one that is free")
	case max(r.dearestInput(), r.dearestOutput()) > 0 && (p.Context == 0 || p.MaxOutput == 0):
		return errors.New("a price per token needs context and max_output, how many tokens a call reads and writes at most: without them nothing can be reserved")
	}
	if _, refused := p.Bounds(Ask{}); refused != nil {
		return fmt.Errorf("a call of context and max_output tokens would cost more than %v", money.Max)
	}
	return nil
}

func validateVariants(word string, variants []Variant) error {
	type variant struct {
		resolution string
		audio      bool
	}
	seen := make(map[variant]bool, len(variants))
	for _, v := range variants {
		if err := v.validate(); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
		if v.Audio && word == "image" {
			return errors.New("image: an image has no audio")
		}
		key := variant{strings.ToUpper(v.Resolution), v.Audio}
		if seen[key] {
			return fmt.Errorf("%s: %v is there twice", word, v)
		}
		seen[key] = true
	}
	return nil
}

func (v Variant) validate() error {
	if v.Price < 0 {
		return fmt.Errorf("%v must not be negative", v)
	}
	amount := v.Resolution != "" && strings.Trim(v.Resolution, "0123456789.") == "" // one too many
	if amount || len(v.Resolution) > 32 || strings.EqualFold(v.Resolution, "audio") {
		return fmt.Errorf("%q is no resolution, such as 1080P", v.Resolution)
	}
	for _, c := range []byte(v.Resolution) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("%q is no resolution, such as 1080P", v.Resolution)
		}
	}
	return nil
}

// String returns the variant as its line in a Caddyfile has it.
func (v Variant) String() string {
	words := make([]string, 0, 3)
	if v.Resolution != "" {
		words = append(words, v.Resolution)
	}
	if v.Audio {
		words = append(words, "audio")
	}
	return strings.Join(append(words, v.Price.String()), " ")
}
