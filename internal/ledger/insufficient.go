package ledger

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
)

// Short is the error of a refused reservation.
type Short struct {
	Needed    money.Amount
	Available money.Amount // the part that could have been reserved
	Budget    string       // the scope of the exhausted budget; empty: the money is short
	Owed      money.Amount // a receivable pauses spending; zero: there is none
	Only      string       // the user's preference by which not all money is available; empty: all is
}

// there describes the available amount, and the preference if that excludes some money.
func (s *Short) there() string {
	if s.Only == "" {
		return fmt.Sprintf("%v is available", s.Available)
	}
	return fmt.Sprintf("%v is available by your preference %s", s.Available, s.Only)
}

// Error implements error.
func (s *Short) Error() string {
	switch {
	case s.Owed > 0:
		return fmt.Sprintf("spending is paused: %v is owed", s.Owed)
	case s.Budget != "":
		return fmt.Sprintf("%v is needed, the budget %s has %v left", s.Needed, s.Budget, s.Available)
	}
	return fmt.Sprintf("%v is needed, %s", s.Needed, s.there())
}

// short returns why amount cannot be reserved, or nil. If amount is zero, it returns why nothing
// at all can be reserved. The mutex is held.
func (p *balances) short(amount money.Amount, caps []allowance) *Short {
	least := max(amount, 1)
	if p.owed > 0 {
		return &Short{Needed: amount, Owed: p.owed}
	}
	for _, c := range caps {
		if left := c.left(); left < least {
			return &Short{Needed: amount, Available: left, Budget: c.scope}
		}
	}
	if available := p.available(); available < least {
		return &Short{Needed: amount, Available: available, Only: p.only}
	}
	return nil
}

// Fault returns the refusal of a request that is paid as it is used. What names the
// request, such as "this call", and hint is appended to its amounts. If Needed is 0, the
// caller asked for any money at all, and the fault has no amounts.
func (s *Short) Fault(what, hint string) *fault.Fault {
	code, whose := fault.InsufficientQuota, "your account"
	if s.Budget != "" && s.Budget != userScope {
		code, whose = fault.InsufficientKeyQuota, "this API key"
	}
	switch {
	case s.Owed > 0:
		return fault.New(fault.InsufficientQuota, "spending is paused, because %v is owed after a refund or a dispute; ask the operator", s.Owed)
	case s.Needed == 0 && s.Budget != "":
		return fault.New(code, "the budget of %s is used up", whose)
	case s.Needed == 0:
		return fault.New(code, "there is no money for this request: %s", s.there())
	case s.Budget != "":
		return fault.New(code, "%s may cost up to %v, and the budget of %s has %v left%s", what, s.Needed, whose, s.Available, hint)
	}
	return fault.New(code, "%s may cost up to %v, and %s%s", what, s.Needed, s.there(), hint)
}

// PurchaseFault returns the refusal of a purchase, which only the wallet pays.
func (s *Short) PurchaseFault() *fault.Fault {
	if s.Owed > 0 {
		return fault.New(fault.InsufficientBalance, "spending is paused: %v is owed after a refund or a dispute, until an operator clears it", s.Owed)
	}
	return fault.New(fault.InsufficientBalance, "%v is needed, the wallet has %v available", s.Needed, s.Available)
}
