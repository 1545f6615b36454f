package dialect

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// rateHeaders are the canonical names of the headers with the status of a rate limit.
type rateHeaders struct {
	limit, remaining, reset string
}

var (
	anthropicRequests = rateHeaders{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"}
	anthropicTokens   = rateHeaders{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"}

	openAIRequests = rateHeaders{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}
	openAITokens   = rateHeaders{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"}
)

// ShowRateLimits adds the status of the caller's limits to an answer with the error
// RATE_LIMITED. It also adds the time until the next try in milliseconds, which the vendors'
// clients read in addition to Retry-After. now is the time of the status. Other answers do not
// have these headers: no SDK reads them there, and they would cost 2.5 % of the CPU of a call.
func (d Dialect) ShowRateLimits(header http.Header, f *fault.Fault, status limit.RateLimitStatus, now time.Time) {
	if f.Code != fault.RateLimited {
		return
	}
	if d == Anthropic {
		reset := func(after time.Duration) string { return now.Add(after).UTC().Format(time.RFC3339) }
		anthropicRequests.set(header, status.Requests, reset)
		anthropicTokens.set(header, status.Units, reset)
	} else {
		openAIRequests.set(header, status.Requests, time.Duration.String) // such as 1.5s
		openAITokens.set(header, status.Units, time.Duration.String)
	}
	if f.RetryAfter > 0 {
		header.Set("Retry-After-Ms", strconv.FormatInt(f.RetryAfter.Milliseconds(), 10))
	}
}

// set writes the status of one limit, if there is one.
func (h rateHeaders) set(header http.Header, status limit.WindowStatus, reset func(time.Duration) string) {
	if status.Limit == 0 {
		return
	}
	header.Set(h.limit, strconv.FormatInt(status.Limit, 10))
	header.Set(h.remaining, strconv.FormatInt(status.Remaining, 10))
	header.Set(h.reset, reset(status.Reset))
}
