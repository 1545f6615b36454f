package billing

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
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
		lo, _ := storage.Below(duePrefix)
		if users, err = keysBetween(r, lo, storage.Key(duePrefix, now+1), sweepMost); err != nil {
			return err
		}
		lo, _ = storage.Below(orderDuePrefix)
		orders, err = keysBetween(r, lo, storage.Key(orderDuePrefix, now+1), sweepMost)
		return err
	})
	if err != nil {
		return err
	}
	var failed []error // one user's trouble does not keep the others waiting
	for _, key := range users {
		failed = append(failed, d.sweepUser(ctx, string(key[len(duePrefix)+1+9:])))
	}
	if len(orders) > 0 {
		failed = append(failed, fault.OfStore(d.store.Update(ctx, func(t storage.Txn) error { return expire(t, orders) })))
	}
	return errors.Join(failed...)
}

// sweepUser brings what a user may spend up to now.
func (d *Desk) sweepUser(ctx context.Context, user string) error {
	var q quotas
	err := d.ledger.Update(ctx, user, nil, func(t *ledger.Txn) error {
		now := d.store.Now()
		r, err := readRoster(t, user, now)
		if err == nil {
			q, err = spend(t, now, user, r)
		}
		return err
	})
	for id, why := range q.unopened {
		d.log.Error("a period of quota cannot be opened; until it can, the user spends without it",
			zap.String("user_id", user), zap.Int64("subscription_id", id), zap.Error(why))
	}
	return err
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
