package call

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// admit checks the rate limits before the body is read. If every call has a price, it
// also refuses a caller without funds.
func (c *call) admit(r *http.Request) *fault.Fault {
	limits := &c.block.app.Limits
	key, user := auth.Subjects(c.principal, limits)
	announced := usage.Estimate(max(r.ContentLength, 0))
	if c.formType != "" { // most of a form are files, of which extend knows the tokens
		announced = 0
	}
	grant, refused := c.runtime.Rates.Admit(c.started, limit.Request{Key: key, User: user, Units: announced})
	if refused != nil {
		c.rateLimits = refused.Status
		return auth.RateLimited(refused)
	}
	c.bill.grant, c.rateLimits = grant, grant.Status
	var f *fault.Fault
	switch {
	case c.route.free:
		bucket, counted := "count_tokens/", "counts of tokens"
		if c.route.object != nil {
			bucket, counted = "objects/", "requests for stored objects"
		}
		refused = c.runtime.Rates.TakeOfAllNodes(c.started, bucket+c.principal.UserID, 1, limit.PerMinute(limits.CountTokensPerMinute))
		if refused != nil && refused.Err != nil {
			f = fault.FromStore(refused.Err)
		} else if refused != nil {
			f = fault.New(fault.RateLimited, "the limit of %d %s per minute of your account is reached", refused.Limit, counted).After(refused.RetryAfter)
		}
	case c.block.app.CallsCost():
		f = auth.CheckFunds(r.Context(), c.runtime, c.principal)
	}
	if f != nil {
		c.bill.release(c.started)
	}
	return f
}

// extend checks the rate limits that depend on the body.
func (c *call) extend() *fault.Fault {
	refused := c.runtime.Rates.Extend(c.started, &c.bill.grant, c.estimate(int64(len(c.members())))+c.request.InlineTokens(), c.request.Stream)
	c.rateLimits = c.bill.grant.Status
	if refused != nil {
		return auth.RateLimited(refused)
	}
	return nil
}

// estimate returns the estimated input of a body with text bytes, in tokens. A prompt
// that is given as tokens is counted, not estimated.
func (c *call) estimate(text int64) int64 {
	tokens, bytes := c.request.PromptTokens()
	return usage.Estimate(max(text-bytes, 0)) + tokens
}
