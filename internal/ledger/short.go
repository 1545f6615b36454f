package ledger

import "github.com/caddy-modelgate/modelgate/internal/fault"

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
