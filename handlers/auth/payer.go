package auth

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// Payer returns who pays for the requests of a principal, and under which budgets: of the key,
// the operator's and the owner's, and the user's. A budget that is not set does not limit.
func Payer(p *identity.Principal) ledger.Payer {
	who := ledger.Payer{User: p.UserID}
	if l := p.OperatorLimits; l.Budget > 0 {
		who.Budgets[0] = ledger.KeyBudget(p.KeyID, l.Budget, l.Reset)
	}
	if l := p.OwnerLimits; l.Budget > 0 {
		who.Budgets[1] = ledger.OwnerBudget(p.KeyID, l.Budget, l.Reset)
	}
	if l := p.UserLimits; l.Budget > 0 {
		who.Budgets[2] = ledger.UserBudget(l.Budget, l.Reset)
	}
	return who
}

// CheckFunds refuses a principal without any money to spend. It is asked before the body
// of a request that costs money whatever it says, so that nothing is kept in memory for a
// caller who cannot pay for it.
func CheckFunds(ctx context.Context, runtime *caddymodule.Runtime, p *identity.Principal) *fault.Fault {
	err := runtime.Ledger.CheckFunds(ctx, Payer(p))
	var short *ledger.Short
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &short):
		return fault.FromStore(err)
	}
	return short.Fault("", "")
}

// Subjects returns the two subjects in whose rates the requests of a principal count:
// the key, with the rates of [caddymodule.Limits.OfKey], and the user, for all of the
// user's keys together.
func Subjects(p *identity.Principal, limits *caddymodule.Limits) (key, user limit.Subject) {
	l := p.UserLimits
	return limit.Subject{ID: p.KeyID, Rates: limits.OfKey(p)}, limit.Subject{ID: p.UserID, Rates: limit.Rates{
		Requests: limit.PerSecond(l.RequestsPerSecond), Units: limit.PerMinute(l.TokensPerMinute), Concurrent: l.Streams,
	}}
}

// RateLimited returns the answer to a principal whose rates [Subjects] returned: RATE_LIMITED. Units
// are tokens.
func RateLimited(r *limit.Refusal) *fault.Fault {
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
