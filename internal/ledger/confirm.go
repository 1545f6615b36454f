package ledger

import (
	"cmp"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// reserveLater returns the reservation of a debit by [Ledger.Update] on a shared store. It reserves
// nothing yet: [Reservation.Confirm] calls take in the transaction of the debit.
func (l *Ledger) reserveLater(payer Payer, take func(p *balances, r *Reservation) error) (*Reservation, error) {
	if err := cmp.Or(l.store.Err(), l.settler.failing()); err != nil {
		return nil, fault.OfStore(err)
	}
	r := &Reservation{ledger: l}
	r.confirm = func(t storage.Txn) error {
		r.balances, r.parts, r.caps, r.amount = nil, nil, nil, 0
		p, err := l.readBalances(t, payer, r)
		if err != nil {
			return err
		}
		return take(p, r)
	}
	return r, nil
}

// Confirm reserves in the transaction t of [Ledger.Update] if the store is shared, or returns the
// [*Shortfall]. It must be called before the amount is used. If the store is not shared, the amount is
// already reserved, and Confirm does nothing. r may be nil.
func (r *Reservation) Confirm(t *Txn) error {
	if r == nil || r.confirm == nil {
		return nil
	}
	return r.confirm(t)
}
