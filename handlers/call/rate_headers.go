package call

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// rateHeaders are the headers, in their canonical form, in which the clients of a dialect read the
// status of a rate limit.
type rateHeaders struct {
	limit, remaining, reset string
}

var (
	messagesRequests = rateHeaders{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"}
	messagesTokens   = rateHeaders{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"}

	completionsRequests = rateHeaders{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}
	completionsTokens   = rateHeaders{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"}
)

// showRateLimits adds to a RATE_LIMITED answer what is left of the caller's limits, and when to try
// again in the milliseconds that the vendors' own clients read beside Retry-After. Other answers do
// not have these headers: no SDK reads them there, and they would cost 2.5 % of the CPU of a call.
func (c *call) showRateLimits(header http.Header, f *fault.Fault) {
	if f.Code != fault.RateLimited {
		return
	}
	if c.route.dialect == dialect.Anthropic {
		messagesRequests.show(header, c, c.rateLimits.Requests)
		messagesTokens.show(header, c, c.rateLimits.Units)
	} else {
		completionsRequests.show(header, c, c.rateLimits.Requests)
		completionsTokens.show(header, c, c.rateLimits.Units)
	}
	if f.RetryAfter > 0 {
		header.Set("Retry-After-Ms", strconv.FormatInt(f.RetryAfter.Milliseconds(), 10))
	}
}

// show writes one limit.
func (h rateHeaders) show(header http.Header, c *call, left limit.WindowStatus) {
	if left.Limit == 0 {
		return
	}
	reset := left.Reset.String() // how long until then, as 1.5s
	if c.route.dialect == dialect.Anthropic {
		reset = c.started.Add(left.Reset).UTC().Format(time.RFC3339)
	}
	header.Set(h.limit, strconv.FormatInt(left.Limit, 10))
	header.Set(h.remaining, strconv.FormatInt(left.Remaining, 10))
	header.Set(h.reset, reset)
}
