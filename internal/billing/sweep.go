package billing

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// sweepLimit is the maximum number of users, and of orders, that one Sweep handles.
const sweepLimit = 256

// Sweep opens the quota of new periods, ends subscriptions, and expires unpaid orders. It must be
// called at intervals. Each call handles a limited number; the next call handles the rest, unless a
// request of the user does so first.
func (b *Service) Sweep(ctx context.Context) error {
	before := b.store.Now().Unix() + 1
	var users, expired []string
	err := b.view(ctx, func(r storage.Reader) (err error) {
		if users, err = first(records.Summaries.PrimaryKeys(r, records.DueSummaries.Under().Before(before)), sweepLimit); err != nil {
			return err
		}
		expired, err = first(records.Orders.PrimaryKeys(r, records.DueOrders.Under().Before(before)), sweepLimit)
		return err
	})
	if err != nil {
		return err
	}
	var failed []error // an error of one user does not stop the others
	for _, user := range users {
		failed = append(failed, b.sweepUser(ctx, user))
	}
	if len(expired) > 0 {
		failed = append(failed, fault.OfStore(b.store.Update(ctx, func(t storage.Txn) error {
			for _, tradeNo := range expired {
				o, err := records.ReadOrder(t, tradeNo)
				if err == nil && o != nil && o.Status == records.Pending {
					err = o.Become(t, time.Unix(o.ExpiresAt, 0), records.OrderExpired)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})))
	}
	return errors.Join(failed...)
}

// first returns at most n keys.
func first(keys iter.Seq2[string, error], n int) (list []string, err error) {
	for key, err := range keys {
		if err != nil {
			return nil, err
		}
		if list = append(list, key); len(list) == n {
			break
		}
	}
	return list, nil
}

// sweepUser updates the sources and the summary of a user.
func (b *Service) sweepUser(ctx context.Context, user string) error {
	var q quotas
	err := b.ledger.Update(ctx, user, nil, func(t *ledger.Txn) error {
		now := b.store.Now()
		r, err := records.ReadSummary(t, user, now)
		if err == nil {
			q, err = spend(t, now, r)
		}
		return err
	})
	for id, err := range q.unopened {
		b.log.Error("a quota period cannot be opened; the user cannot spend its quota",
			zap.String("user_id", user), zap.Int64("subscription_id", id), zap.Error(err))
	}
	return err
}
