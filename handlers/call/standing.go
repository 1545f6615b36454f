package call

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// standingHeaders are the headers, in their canonical form, in which the clients
// of a dialect read how far a limit is used up.
type standingHeaders struct {
	limit, remaining, reset string
}

var (
	messagesRequests = standingHeaders{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"}
	messagesTokens   = standingHeaders{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"}

	completionsRequests = standingHeaders{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}
	completionsTokens   = standingHeaders{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"}
)

// showStanding puts on a refusal for the caller's rate what is left of his
// limits, and when to try again in the milliseconds that the vendors' own clients
// read beside Retry-After. Other answers do not have them: no SDK reads them
// there, and they would cost each call a fortieth of what it costs in all.
func (c *call) showStanding(header http.Header, f *fault.Fault) {
	if f.Code != fault.RateLimited {
		return
	}
	if c.route.dialect == reply.Anthropic {
		messagesRequests.show(header, c, c.standing.Requests)
		messagesTokens.show(header, c, c.standing.Tokens)
	} else {
		completionsRequests.show(header, c, c.standing.Requests)
		completionsTokens.show(header, c, c.standing.Tokens)
	}
	if f.RetryAfter > 0 {
		header.Set("Retry-After-Ms", strconv.FormatInt(f.RetryAfter.Milliseconds(), 10))
	}
}

// show writes one limit.
func (h standingHeaders) show(header http.Header, c *call, room limit.Room) {
	if room.Limit == 0 {
		return
	}
	reset := room.Reset.String() // how long until then, as 1.5s
	if c.route.dialect == reply.Anthropic {
		reset = c.started.Add(room.Reset).UTC().Format(time.RFC3339)
	}
	header.Set(h.limit, strconv.FormatInt(room.Limit, 10))
	header.Set(h.remaining, strconv.FormatInt(room.Remaining, 10))
	header.Set(h.reset, reset)
}
