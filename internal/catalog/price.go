package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
)

// Price is what calls of the models it names cost, in the configured currency.
// A call costs its tokens by kind and the price per request; a generated image
// or second has prices of its own.
type Price struct {
	// The models: an exact name, or a prefix and `*`. An exact name goes before
	// a prefix, a longer prefix before a shorter one. Of images and videos one that
	// begins with neither `image-` nor `video-` names what follows these.
	Model Pattern `json:"model"`

	// Prices per million tokens. A price per token names both input and output;
	// `0` is free.
	TokenPrices

	// Per call or generation that is charged at all, beside its tokens, images or
	// seconds. Default: nothing.
	Request money.Amount `json:"request,omitzero"`

	// How many tokens of input one prompt can have. Required with a price per
	// token that is not zero: the greatest price of a call is reserved before it.
	Context int64 `json:"context,omitempty"`

	// How many tokens of output one answer can have. Required as context is.
	MaxOutput int64 `json:"max_output,omitempty"`

	// What becomes of a call whose caller disconnects, where it is not what the
	// app's on_disconnect says: `cancel`, or `finish` and a duration.
	OnDisconnect OnDisconnect `json:"on_disconnect,omitzero"`

	// Whether a call that failed at its backend before any content is charged its
	// input. Default: as the app's charge_failed_input says.
	ChargeFailedInput *bool `json:"charge_failed_input,omitempty"`

	// Per generated image, by resolution.
	Image []Variant `json:"image,omitempty"`

	// Per generated second of video, by resolution and sound.
	Second []Variant `json:"second,omitempty"`

	// Prices of calls with a long prompt.
	Above []Above `json:"above,omitempty"`

	// Prices of service tiers and speeds.
	Tier []Tier `json:"tier,omitempty"`

	// Factors for the regions that answer.
	Geo []Geo `json:"geo,omitempty"`

	// Prices of the tools that backends run, beside their tokens. A call that
	// lets the backend use any other one is refused.
	Call []ToolPrice `json:"call,omitempty"`
}

// MaxTokens bounds the context and the max_output of a price.
const MaxTokens = 1_000_000_000

// Variant is a price of one image or second.
type Variant struct {
	// The resolution it holds for, in any case: 1080P. Or what `mode`, `quality` or
	// a like member of a request says: pro. Default: all that no other variant
	// names.
	Resolution string `json:"resolution,omitempty"`

	// Whether it holds for video with sound only. One that is not for sound only
	// holds for video with sound too, unless there is another for it at the same
	// resolution.
	Audio bool `json:"audio,omitempty"`

	// In the configured currency.
	Price money.Amount `json:"price"`
}

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
	if err := p.validate(); err != nil {
		return err
	}
	perToken := p.TokenPrices != (TokenPrices{})
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
	case p.hasRules() && !perToken:
		return errors.New("above, tier, geo and call need a price per token: name input and output")
	case (p.hasRules() || slices.Max(r[:]) > 0) && (p.Context == 0 || p.MaxOutput == 0):
		return errors.New("a price per token needs context and max_output, how many tokens a call reads and writes at most: without them nothing can be reserved")
	}
	if err := p.validateRules(); err != nil {
		return err
	}
	if _, ok := p.bounds(Ask{Audio: true, Image: true, ImageOut: true}); !ok {
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
