package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
)

// Price is the price of calls to the models that it matches, in the configured
// currency. A call costs its tokens by kind plus the price per request.
// Generated images and seconds have their own prices.
type Price struct {
	// The models: an exact name, or a prefix and `*`. An exact name takes
	// precedence over a prefix, a longer prefix over a shorter one. For images
	// and videos, a name without `image-` or `video-` matches the rest of the
	// model's name.
	Model Pattern `json:"model"`

	// Prices per million tokens. A price per token must set both input and
	// output; `0` is free.
	TokenPrices

	// The price per charged call or generation, in addition to its tokens,
	// images or seconds. Default: none.
	Request money.Amount `json:"request,omitzero"`

	// The maximum number of input tokens of a prompt. It is required if a
	// price per token is not zero, because the highest cost of a call is
	// reserved before the call.
	Context int64 `json:"context,omitempty"`

	// The maximum number of output tokens of an answer. It is required in the
	// same cases as context, unless all output is free.
	MaxOutput int64 `json:"max_output,omitempty"`

	// What happens to a call whose client disconnects: `cancel`, or `finish`
	// and a duration. Default: the app's on_disconnect.
	OnDisconnect OnDisconnect `json:"on_disconnect,omitzero"`

	// Whether the input is charged if the backend failed before any content.
	// Default: the app's charge_failed_input.
	ChargeFailedInput *bool `json:"charge_failed_input,omitempty"`

	// Per generated image, by resolution. For model calls, by size and quality.
	Image []Variant `json:"image,omitempty"`

	// Per character of a text to speak, and per second of a recording.
	Per []UnitPrice `json:"per,omitempty"`

	// Per generated second of video, by resolution and sound.
	Second []Variant `json:"second,omitempty"`

	// Prices of calls with a long prompt.
	Above []Above `json:"above,omitempty"`

	// Prices of service tiers and speeds.
	Tier []Tier `json:"tier,omitempty"`

	// Factors for the regions that answer.
	Geo []Geo `json:"geo,omitempty"`

	// Prices of tools that backends run, in addition to tokens. A call that
	// allows any other tool is refused.
	Call []ToolPrice `json:"call,omitempty"`
}

// MaxTokens is the highest context and max_output of a price.
const MaxTokens = 1_000_000_000

// Variant is a price of one image or second.
type Variant struct {
	// The resolution, in any case, such as 1080P; or the value of `mode`,
	// `quality` or a similar member of a request, such as pro. Default: every
	// resolution without its own variant.
	Resolution string `json:"resolution,omitempty"`

	// Whether it applies only to video with sound. Otherwise it also applies to
	// video with sound, unless the resolution has a variant for sound.
	Audio bool `json:"audio,omitempty"`

	// The price in the configured currency.
	Price money.Amount `json:"price"`
}

// Validate returns an error if an amount is negative, or if a price per token has no limits. It
// also does so if the cost of one call could exceed the range of an amount.
func (p *Price) Validate() error {
	if _, err := ParsePattern(string(p.Model)); err != nil {
		return fmt.Errorf("price: %w", err)
	}
	if err := errors.Join(p.validateTokens(), p.validateUnits(), validateVariants("image", p.Image), validateVariants("second", p.Second)); err != nil {
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
	case !perToken && p.Request == 0 && len(p.Image)+len(p.Second)+len(p.Per) == 0:
		return errors.New("it names no price: give input and output, request, image, second or per; input 0 and output 0 are free")
	case perToken && (p.Input == nil || p.Output == nil):
		return errors.New("a price per token names input and output; write 0 for the one that is free")
	case p.hasRules() && !perToken:
		return errors.New("above, tier, geo and call need a price per token: name input and output")
	case (p.hasRules() || slices.Max(r[:]) > 0) && (p.Context == 0 || p.MaxOutput == 0 && !p.freeOutput()):
		return errors.New("a price per token needs context and max_output, the maximum numbers of input and output tokens of a call, which are reserved")
	}
	if err := p.validateRules(); err != nil {
		return err
	}
	if _, ok := p.bounds(CallSpec{Audio: true, Image: true, ImageOut: true}); !ok {
		return fmt.Errorf("a call of context and max_output tokens would cost more than %v", money.Max)
	}
	return nil
}

// freeOutput reports whether output is free, as that of a model for embeddings.
func (p *Price) freeOutput() bool {
	r := p.rates()
	_, output := r.highest(true, true, true)
	return !p.hasRules() && output == 0
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
			return fmt.Errorf("%s: %v is given twice", word, v)
		}
		seen[key] = true
	}
	return nil
}

func (v Variant) validate() error {
	if v.Price < 0 {
		return fmt.Errorf("%v must not be negative", v)
	}
	amount := v.Resolution != "" && strings.Trim(v.Resolution, "0123456789.") == "" // a misplaced amount
	unprintable := strings.ContainsFunc(v.Resolution, func(c rune) bool { return c <= ' ' || c > '~' })
	if amount || unprintable || len(v.Resolution) > 32 || strings.EqualFold(v.Resolution, "audio") {
		return fmt.Errorf("%q is not a resolution such as 1080P", v.Resolution)
	}
	return nil
}

// String returns the variant as written in a Caddyfile.
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
