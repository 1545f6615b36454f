package catalog

import (
	"math"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// Media is what a body holds beside the text of its messages.
type Media struct {
	Images      int64 // inline
	AudioTokens int64 // of inline audio, at most
	TextBytes   int64 // of inline text outside of the messages' own: documents
}

// imageEstimate is the number of tokens that an image is estimated at. It is about
// what the vendors' documents count for a large one; the reservation has ten times
// as many.
const imageEstimate = 5_000

// Estimate returns the input of a call whose backend reports none, by what its body
// holds: text and links to images, as they were read of it, prompts that are given
// as so many tokens, and media. With unmeasured it is at least the whole context,
// since the call has something that no number can be given for. It is never more
// than is reserved. A nil Price estimates, too.
func (p *Price) Estimate(b Bounds, body usage.Request, tokens int64, m Media, unmeasured bool) usage.Tokens {
	t := usage.Tokens{
		Input:      usage.Estimate(body.TextBytes+m.TextBytes) + tokens,
		ImageInput: (m.Images + body.ImageLinks) * imageEstimate,
		AudioInput: m.AudioTokens,
	}
	if p == nil || p.Context == 0 {
		return t
	}
	if more := b.pass - t.AllInput(); unmeasured && more > 0 {
		t.Input += more
	}
	r := p.rates()
	t, _ = r.cut(b.Reserve, math.MaxInt64, t)
	return t
}
