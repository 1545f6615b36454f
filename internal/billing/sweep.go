package billing

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/storage"
)

// sweepMost is how many users, and how many orders, one Sweep looks after.
const sweepMost = 256

// Sweep does what time alone asks for: it opens the quota of new periods, ends
// what has ended, and lets orders expire that nobody has paid. It is called now
// and then and does a bounded part of it; what is left is done by the next, or
// on the way by whoever comes first.
func (d *Desk) Sweep(ctx context.Context) error {
	now := d.store.Now().Unix()
	var users, orders [][]byte
	err := d.view(ctx, func(r storage.Reader) (err error) {
		lo, _ := below(duePrefix)
		if users, err = keysBetween(r, lo, keyOf(duePrefix, now+1), sweepMost); err != nil {
			return err
		}
		lo, _ = below(orderDuePrefix)
		orders, err = keysBetween(r, lo, keyOf(orderDuePrefix, now+1), sweepMost)
		return err
	})
	if err != nil {
		return err
	}
	var failed []error // one user's trouble does not keep the others waiting
	for _, key := range users {
		user := string(key[len(duePrefix)+1+9:])
		// The ledger looks at what the user may spend, which brings it up to now.
		failed = append(failed, d.ledger.Update(ctx, user, nil, func(storage.Txn) error { return nil }))
	}
	if len(orders) > 0 {
		failed = append(failed, unavailable(d.store.Update(ctx, func(t storage.Txn) error { return expire(t, orders) })))
	}
	return errors.Join(failed...)
}

// expire ends the orders at these keys that are still pending.
func expire(t storage.Txn, due [][]byte) error {
	for _, key := range due {
		o, found, err := readOrder(t, string(key[len(orderDuePrefix)+1+9:]))
		if err != nil {
			return err
		}
		if !found || o.Status != Pending {
			continue
		}
		if err := o.become(t, Lapsed); err != nil {
			return err
		}
	}
	return nil
}
