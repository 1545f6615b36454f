package ledger

import "context"

// CheckFunds returns a [*Short] that needs nothing if the payer has no money at all to
// reserve: the balance or a budget is used up, or spending is paused. It reads memory
// only, but for a user's first call in a while or in a new period.
func (l *Ledger) CheckFunds(ctx context.Context, payer Payer) error {
	p, now, err := l.unlock(ctx, payer)
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	if p.owed > 0 {
		return &Short{Owed: p.owed}
	}
	for _, b := range payer.Budgets {
		if b.Limit > 0 && (allowance{p.caps[b.key(now)], b.Limit, b.Scope}).left() == 0 {
			return &Short{Budget: b.Scope}
		}
	}
	if p.available() == 0 {
		return &Short{Only: p.only}
	}
	return nil
}
