package catalog

import (
	"math"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// Media is the content of a body other than the text of its messages.
type Media struct {
	Images      int64 // number of inline images
	AudioTokens int64 // maximum of tokens of inline audio
	TextBytes   int64 // bytes of inline documents
}

// ImageEstimate is the estimated number of tokens of an image. It is about the number that vendors
// document for a large image. The reservation is ten times as high.
const ImageEstimate = 5_000

// Estimate returns the estimated input of a call without a usage report, from the content of its
// body. The content is text and image links, prompts that are given as tokens, and media.
// unmeasured says that the size of some input is unknown; then the estimate is at least the whole
// context. It is never more than the reservation. p may be nil.
func (p *Price) Estimate(b Bounds, body usage.Request, tokens int64, m Media, unmeasured bool) usage.Tokens {
	t := usage.Tokens{
		Input:      usage.Estimate(body.TextBytes+m.TextBytes) + tokens,
		ImageInput: (m.Images + body.ImageLinks) * ImageEstimate,
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
