package call

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// standingHeaders are the headers in which each dialect's clients read how far
// their limits are used up, for requests and for tokens.
var standingHeaders = map[reply.Dialect]struct {
	limit, remaining, reset string // followed by requests or tokens, where they have none
	suffix                  [3]string
	at                      func(now time.Time, reset time.Duration) string
}{
	// The time of the reset, as RFC 3339.
	reply.Messages: {
		"Anthropic-Ratelimit-", "Anthropic-Ratelimit-", "Anthropic-Ratelimit-",
		[3]string{"-Limit", "-Remaining", "-Reset"},
		func(now time.Time, reset time.Duration) string {
			return now.Add(reset).UTC().Format(time.RFC3339)
		},
	},
	// How long until the reset, as 1.5s.
	reply.Completions: {
		"X-Ratelimit-Limit-", "X-Ratelimit-Remaining-", "X-Ratelimit-Reset-",
		[3]string{},
		func(_ time.Time, reset time.Duration) string { return reset.String() },
	},
}

// showStanding puts on an answer what is left of the caller's limits, and on a
// refusal for its rate when to try again, in the milliseconds that the vendors'
// own clients read beside Retry-After.
func (c *call) showStanding(header http.Header, f *fault.Fault) {
	names, ok := standingHeaders[c.route.dialect]
	if !ok {
		return
	}
	for _, room := range []struct {
		what string
		limit.Room
	}{{"Requests", c.standing.Requests}, {"Tokens", c.standing.Tokens}} {
		if room.Limit == 0 {
			continue
		}
		header.Set(names.limit+room.what+names.suffix[0], strconv.FormatInt(room.Limit, 10))
		header.Set(names.remaining+room.what+names.suffix[1], strconv.FormatInt(room.Remaining, 10))
		header.Set(names.reset+room.what+names.suffix[2], names.at(c.started, room.Reset))
	}
	if f != nil && f.Code == fault.RateLimited && f.RetryAfter > 0 {
		header.Set("Retry-After-Ms", strconv.FormatInt(f.RetryAfter.Milliseconds(), 10))
	}
}
