package ledger

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
)

// Shortfall is the error of a refused reservation.
type Shortfall struct {
	Needed    money.Amount
	Available money.Amount // the part that could have been reserved
	Budget    string       // scope of the exhausted budget; empty: the funding sources are exhausted
	Owed      money.Amount // receivable, which pauses spending; zero: none
	Only      string       // the user's preference if it excludes some money; else empty
}

// available describes the available amount, and the preference if that excludes some money.
func (s *Shortfall) available() string {
	if s.Only == "" {
		return fmt.Sprintf("%v is available", s.Available)
	}
	return fmt.Sprintf("%v is available by your preference %s", s.Available, s.Only)
}

// Error implements error.
func (s *Shortfall) Error() string {
	switch {
	case s.Owed > 0:
		return fmt.Sprintf("spending is paused: %v is owed", s.Owed)
	case s.Budget != "":
		return fmt.Sprintf("%v is needed, the budget %s has %v left", s.Needed, s.Budget, s.Available)
	}
	return fmt.Sprintf("%v is needed, %s", s.Needed, s.available())
}

// shortfall returns why amount cannot be reserved, or nil. If amount is zero, it returns why
// nothing at all can be reserved. The mutex is held.
func (p *balances) shortfall(amount money.Amount, caps []allowance) *Shortfall {
	least := max(amount, 1)
	if p.owed > 0 {
		return &Shortfall{Needed: amount, Owed: p.owed}
	}
	for _, c := range caps {
		if left := c.left(); left < least {
			return &Shortfall{Needed: amount, Available: left, Budget: c.scope}
		}
	}
	if available := p.available(); available < least {
		return &Shortfall{Needed: amount, Available: available, Only: p.only}
	}
	return nil
}

// Fault returns the refusal of a call or a task. what names the request, such as "this call", and
// hint is appended to the amounts. If Needed is 0, the fault has no amounts.
func (s *Shortfall) Fault(what, hint string) *fault.Fault {
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
		return fault.New(code, "there is no money for this request: %s", s.available())
	case s.Budget != "":
		return fault.New(code, "%s may cost up to %v, and the budget of %s has %v left%s", what, s.Needed, whose, s.Available, hint)
	}
	return fault.New(code, "%s may cost up to %v, and %s%s", what, s.Needed, s.available(), hint)
}

// PurchaseFault returns the refusal of a purchase, which only the wallet pays.
func (s *Shortfall) PurchaseFault() *fault.Fault {
	if s.Owed > 0 {
		return fault.New(fault.InsufficientBalance, "spending is paused: %v is owed after a refund or a dispute, until an operator clears it", s.Owed)
	}
	return fault.New(fault.InsufficientBalance, "%v is needed, the wallet has %v available", s.Needed, s.Available)
}
