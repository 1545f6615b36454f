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

// showStanding puts on an answer what is left of the caller's limits, and on a
// refusal for its rate when to try again, in the milliseconds that the vendors'
// own clients read beside Retry-After.
func (c *call) showStanding(header http.Header, f *fault.Fault) {
	if c.route.dialect == reply.Messages {
		messagesRequests.show(header, c, c.standing.Requests)
		messagesTokens.show(header, c, c.standing.Tokens)
	} else {
		completionsRequests.show(header, c, c.standing.Requests)
		completionsTokens.show(header, c, c.standing.Tokens)
	}
	if f != nil && f.Code == fault.RateLimited && f.RetryAfter > 0 {
		header.Set("Retry-After-Ms", strconv.FormatInt(f.RetryAfter.Milliseconds(), 10))
	}
}

// show writes one limit. The three values share one slice: this is on the way of
// every call.
func (h standingHeaders) show(header http.Header, c *call, room limit.Room) {
	if room.Limit == 0 {
		return
	}
	reset := room.Reset.String() // how long until then, as 1.5s
	if c.route.dialect == reply.Messages {
		reset = c.started.Add(room.Reset).UTC().Format(time.RFC3339)
	}
	values := []string{strconv.FormatInt(room.Limit, 10), strconv.FormatInt(room.Remaining, 10), reset}
	header[h.limit] = values[0:1:1]
	header[h.remaining] = values[1:2:2]
	header[h.reset] = values[2:3:3]
}
