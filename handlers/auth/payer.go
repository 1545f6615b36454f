package auth

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
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
