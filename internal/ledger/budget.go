package ledger

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/money"
)

// Budget is a limit for the money spent under a scope in a period. It holds no money.
type Budget struct {
	Scope string       // "key/<id>", "keyowner/<id>" or "user"
	Limit money.Amount // zero: no budget
	Reset calendar.Reset
}

// userScope is the scope of the budget of a user as a whole.
const userScope = "user"

// UserBudget returns a budget of a user as a whole.
func UserBudget(limit money.Amount, reset calendar.Reset) Budget {
	return Budget{Scope: userScope, Limit: limit, Reset: reset}
}

// KeyBudget returns a budget that the operator has set for one API key.
func KeyBudget(key string, limit money.Amount, reset calendar.Reset) Budget {
	return Budget{Scope: "key/" + key, Limit: limit, Reset: reset}
}

// OwnerBudget returns a budget that the owner has set for one API key. It is separate from the
// operator's budget for the key: neither sees the other's.
func OwnerBudget(key string, limit money.Amount, reset calendar.Reset) Budget {
	return Budget{Scope: "keyowner/" + key, Limit: limit, Reset: reset}
}

// Budgets limit the call: at most two of its key and one of its user.
type Budgets [3]Budget

// Payer is the user who pays for a call, and the budgets of the call.
type Payer struct {
	User    string
	Budgets Budgets

	// Tolerance restricts the calls of a user whose uncollected part is larger. Zero restricts
	// no user.
	Tolerance Tolerance

	// FullContext says that the reserved amount is the price of the whole context.
	FullContext bool
}

// allowance is a budget that limits a reservation.
type allowance struct {
	*budgetUsage
	limit money.Amount
	scope string
}

func (c allowance) left() money.Amount { return max(0, c.limit-c.used-c.reserved) }

// allowances sets caps to the budgets of payer in their present periods. It reports whether the
// usage of each has been read; the next load reads any other. The mutex is held.
func (p *balances) allowances(payer Payer, now time.Time, caps *[]allowance) bool {
	known, n := true, 0
	for _, b := range payer.Budgets {
		if b.Limit > 0 {
			spent := p.usageOf(b.key(now))
			known = known && spent.known
			*caps = append((*caps)[:n], allowance{spent, b.Limit, b.Scope})
			n++
		}
	}
	return known
}

func (b Budget) key(now time.Time) capKey { return capKey{b.Scope, b.Reset.Start(now).Unix()} }
