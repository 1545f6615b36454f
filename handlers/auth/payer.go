package auth

import (
	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// Payer is who pays for what a principal asks for, and under which budgets.
func Payer(p *identity.Principal) ledger.Payer {
	who := ledger.Payer{User: p.UserID}
	if l := p.KeyLimits; l.Budget > 0 {
		who.Budgets[0] = ledger.KeyBudget(p.KeyID, l.Budget, l.Reset)
	}
	if l := p.UserLimits; l.Budget > 0 {
		who.Budgets[1] = ledger.UserBudget(l.Budget, l.Reset)
	}
	return who
}

// Subjects are those in whose rates the requests of a principal count: the key,
// which may have those of the configuration, and the user with all of his keys.
func Subjects(p *identity.Principal, limits *caddymodule.Limits) (key, user limit.Subject) {
	l := p.UserLimits
	return limit.Subject{ID: p.KeyID, Rates: limits.OfKey(p.KeyLimits)}, limit.Subject{ID: p.UserID, Rates: limit.Rates{
		RequestsPerSecond: l.RequestsPerSecond, TokensPerMinute: l.TokensPerMinute, Streams: l.Streams,
	}}
}
