package call

import (
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// inputFacts are the facts in the body of a call from which its input is estimated.
type inputFacts struct {
	media      catalog.Media
	links      int64          // of any kind
	unmeasured bool           // some input other than links has no known number of tokens
	text       *usage.Request // the parsed body; nil before the first estimate
}

// Estimates of media in an answer; see docs/reference/calls.md#estimates.
const (
	speechTokensPerSecond = 20
	pcmBytesPerSecond     = 64_000 // in Base64: 24,000 samples of 16 bits
	packedBytesPerSecond  = 5_000  // in Base64: 30 kbit/s
)

// estimateMedia returns the estimated tokens of the speech and the images in an answer.
func (c *call) estimateMedia(meter *usage.Reader) (t usage.Tokens) {
	speech, images := meter.Media()
	t.ImageOutput = images * catalog.ImageEstimate
	if speech > 0 {
		perSecond := int64(packedBytesPerSecond)
		if c.bill.pcm {
			perSecond = pcmBytesPerSecond
		}
		t.AudioOutput = (speech*speechTokensPerSecond + perSecond - 1) / perSecond
	}
	return t
}

// estimateInput returns the estimated input tokens of a call with the outcome o.
//
// If the backend has reported some input and the caller has not disconnected, only
// text is estimated. A failure of the backend must not make the call more expensive.
// Input that cannot be measured counts only after the call has ended. While the call
// runs, the backend may still report it, and a crash charges nothing for it.
func (c *call) estimateInput(o *usage.Outcome) usage.Tokens {
	in := &c.bill.input
	if in.text == nil {
		text := usage.ReadRequest(c.members())
		in.text = &text
	}
	tokens, _ := c.request.PromptTokens()
	text, media, unmeasured := *in.text, in.media, in.unmeasured || in.links > in.text.ImageLinks
	text.TextBytes += c.request.RepeatedBytes()
	if o.Ended != usage.ClientGone && o.Input && o.Tokens.AllInput() > 0 {
		text.ImageLinks, media.Images, media.AudioTokens, unmeasured = 0, 0, 0, false
	}
	return c.bill.price.Estimate(c.bill.bounds, text, tokens, media, unmeasured && o.Ended != "")
}
