package auth

import (
	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// Subjects returns the two subjects whose rates limit the requests of a principal.
// The key has the rates of [caddymodule.Limits.OfKey]. The rates of the user apply
// to all of the user's keys together. Both hold for all nodes of a shared store.
func Subjects(p *identity.Principal, limits *caddymodule.Limits) (key, user limit.Subject) {
	l := p.UserLimits
	return limit.Subject{ID: p.KeyID, Rates: limits.OfKey(p), OfAllNodes: true}, limit.Subject{ID: p.UserID, Rates: limit.Rates{
		Requests: limit.PerSecond(l.RequestsPerSecond), Units: limit.PerMinute(l.TokensPerMinute), Concurrent: l.Streams,
	}, OfAllNodes: true}
}

// RateLimited returns the fault RATE_LIMITED for a refusal of a subject from [Subjects], or
// STORE_UNAVAILABLE. Units are tokens.
func RateLimited(r *limit.Refusal) *fault.Fault {
	if r.Err != nil {
		return fault.FromStore(r.Err)
	}
	whose := "key"
	if r.OfUser {
		whose = "account"
	}
	one := 0
	if r.Limit == 1 {
		one = 1
	}
	words := [...][2]string{
		limit.Requests:   {"requests per second", "request per second"},
		limit.Units:      {"tokens per minute", "token per minute"},
		limit.Concurrent: {"streams at once", "stream at once"},
	}[r.What][one]
	return fault.New(fault.RateLimited, "the limit of %d %s of your %s is reached", r.Limit, words, whose).After(r.RetryAfter)
}
