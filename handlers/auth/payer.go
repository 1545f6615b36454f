package auth

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// Payer returns the user who pays for the requests of a principal, with their budgets. There are
// at most three: the operator's and the owner's budget of the key, and the user's. An unset
// budget does not limit.
func Payer(p *identity.Principal) ledger.Payer {
	payer := ledger.Payer{User: p.UserID}
	if l := p.OperatorLimits; l.Budget > 0 {
		payer.Budgets[0] = ledger.KeyBudget(p.KeyID, l.Budget, l.Reset)
	}
	if l := p.OwnerLimits; l.Budget > 0 {
		payer.Budgets[1] = ledger.OwnerBudget(p.KeyID, l.Budget, l.Reset)
	}
	if l := p.UserLimits; l.Budget > 0 {
		payer.Budgets[2] = ledger.UserBudget(l.Budget, l.Reset)
	}
	return payer
}

// CheckFunds returns a fault if a principal has no money to spend. Call it before reading the
// body of a request that always costs money, so that a caller without funds uses no memory.
func CheckFunds(ctx context.Context, runtime *caddymodule.Runtime, p *identity.Principal) *fault.Fault {
	err := runtime.Ledger.CheckFunds(ctx, Payer(p))
	var short *ledger.Shortfall
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &short):
		return fault.FromStore(err)
	}
	return short.Fault("", "")
}
