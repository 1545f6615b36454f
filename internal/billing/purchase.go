package billing

import (
	"context"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// The operations that have idempotency keys. The names are part of fingerprints and of
// transfer ids, so they must not change.
const (
	operationPay   = "pay"
	operationRenew = "renew"
	operationClaim = "claim"
	operationGrant = "grant"
)

// Buy sells a plan to a user at the current price, paid from the wallet, once for each key.
func (b *Service) Buy(ctx context.Context, plans *Plans, currency, user string, planID int64, key string) (Receipt, error) {
	c, err := idempotencyKey(user, key, operationPay, strconv.FormatInt(planID, 10))
	if err != nil {
		return Receipt{}, err
	}
	if err := checkPlanID(planID); err != nil {
		return Receipt{}, err
	}
	x := pendingSale{kind: records.Bought, currency: currency, id: journal.IDOf(user, operationPay, key)}
	return receipt(once(ctx, b, user, c, func() (_ *ledger.Reservation, err error) {
		if x.plan, err = onSale(plans, planID, "plan_id"); err != nil {
			return nil, err
		}
		x.price = x.plan.Price
		if x.plan.PurchaseLimit > 0 { // this error takes precedence over an empty wallet
			err = b.view(ctx, func(r storage.Reader) error {
				have, err := records.ReadSummary(r, user, b.store.Now())
				if err == nil {
					err = checkPurchaseLimit(have, x.plan)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		return b.charge(ctx, user, plans, x.plan, "plan_id")
	}, func(t *ledger.Txn, now time.Time) (Receipt, audit.Event, error) {
		return x.begin(t, now, user)
	}))
}

// checkPurchaseLimit returns an error if the purchase limit of a plan is reached.
func checkPurchaseLimit(r *records.Summary, plan Plan) error {
	if plan.PurchaseLimit > 0 && r.Purchases[plan.ID] >= plan.PurchaseLimit {
		return fault.At(fault.PurchaseLimitReached, "plan_id", "the plan %d can be bought %d times, and was; it can still be renewed", plan.ID, plan.PurchaseLimit)
	}
	return nil
}

// Refusals returns the plans that a user can neither buy nor claim, with the code of the refusal.
// Such a plan is not on sale, or the user has claimed it, or bought it as often as allowed. It does
// not look at the wallet.
func (b *Service) Refusals(ctx context.Context, user string, plans []Plan) (codes map[int64]fault.Code, err error) {
	codes = make(map[int64]fault.Code)
	err = b.view(ctx, func(r storage.Reader) error {
		bought, err := records.ReadSummary(r, user, b.store.Now())
		for _, plan := range plans {
			var claimed *records.SubscriptionRecord
			if err == nil && plan.Price == 0 {
				claimed, err = records.Subscriptions.Find(r, &records.ClaimedPlans, user, plan.ID)
			}
			switch {
			case err != nil:
				return err
			case plan.Disabled:
				codes[plan.ID] = fault.PlanDisabled
			case claimed != nil:
				codes[plan.ID] = fault.AlreadyClaimed
			case plan.Price > 0 && checkPurchaseLimit(bought, plan) != nil:
				codes[plan.ID] = fault.PurchaseLimitReached
			}
		}
		return err
	})
	return codes, err
}

// Claim gives a user a plan whose price is zero. Each user can claim each plan once.
func (b *Service) Claim(ctx context.Context, plans *Plans, currency, user string, planID int64) (Receipt, error) {
	if err := checkPlanID(planID); err != nil {
		return Receipt{}, err
	}
	plan, err := onSale(plans, planID, "plan_id")
	if err != nil {
		return Receipt{}, err
	}
	if plan.Price != 0 {
		return Receipt{}, fault.At(fault.PlanNotFree, "plan_id", "the plan %d costs %s: it is bought, not claimed", planID, amountOf(plan.Price, currency))
	}
	number := strconv.FormatInt(planID, 10)
	c, err := idempotencyKey(user, keyOrRandom(""), operationClaim, number)
	if err != nil {
		return Receipt{}, err
	}
	x := pendingSale{kind: records.Claimed, plan: plan, currency: currency, id: journal.IDOf(user, operationClaim, number)}
	return receipt(once(ctx, b, user, c, nil, func(t *ledger.Txn, now time.Time) (Receipt, audit.Event, error) {
		before, err := records.Subscriptions.Find(t, &records.ClaimedPlans, user, planID)
		if err != nil {
			return Receipt{}, audit.Event{}, err
		}
		if before != nil {
			return Receipt{}, audit.Event{}, fault.At(fault.AlreadyClaimed, "plan_id", "the plan %d was claimed before, as subscription %d", planID, before.ID)
		}
		return x.begin(t, now, user)
	}))
}

// Renew extends a subscription of a user by its plan, at the current price and
// terms, once for each key. The extension begins when the subscription ends, or now if
// it has ended.
func (b *Service) Renew(ctx context.Context, plans *Plans, currency, user string, subscriptionID int64, key string) (Receipt, error) {
	c, err := idempotencyKey(user, key, operationRenew, strconv.FormatInt(subscriptionID, 10))
	if err != nil {
		return Receipt{}, err
	}
	x := pendingSale{kind: records.Renewed, currency: currency, id: journal.IDOf(user, operationRenew, key)}
	return receipt(once(ctx, b, user, c, func() (*ledger.Reservation, error) {
		var s *records.SubscriptionRecord
		err := b.view(ctx, func(r storage.Reader) (err error) {
			s, err = renewable(r, user, subscriptionID)
			return err
		})
		if err != nil {
			return nil, err
		}
		var found bool
		if x.plan, found = plans.Find(s.PlanID); !found || x.plan.Disabled {
			return nil, fault.At(fault.PlanDisabled, "subscription_id", "the plan %d of this subscription is not sold any more", s.PlanID)
		}
		x.price = x.plan.Price
		return b.charge(ctx, user, plans, x.plan, "subscription_id")
	}, func(t *ledger.Txn, now time.Time) (Receipt, audit.Event, error) {
		s, err := renewable(t, user, subscriptionID)
		if err != nil {
			return Receipt{}, audit.Event{}, err
		}
		return x.extend(t, now, s)
	}))
}

// renewable returns a subscription of a user that can be renewed.
func renewable(r storage.Reader, user string, id int64) (*records.SubscriptionRecord, error) {
	s, err := readSubscription(r, user, id)
	if err == nil && s.Cancelled != 0 {
		err = alreadyCancelled(id)
	}
	return s, err
}

// GrantPlan gives a plan to the user with this id or name, for an operator. It charges nothing and
// does not count as a purchase. The plan need not be on sale. The key is optional.
func (b *Service) GrantPlan(ctx context.Context, actor string, plans *Plans, currency, idOrName string, planID int64, reason, key string) (Receipt, error) {
	if err := audit.CheckReason(reason, false); err != nil {
		return Receipt{}, err
	}
	if err := checkPlanID(planID); err != nil {
		return Receipt{}, err
	}
	ctx = audit.WithReason(ctx, reason)
	user, err := b.directory.User(ctx, idOrName)
	if err != nil {
		return Receipt{}, err
	}
	c, err := idempotencyKey(records.OperatorScope(user.ID), keyOrRandom(key), operationGrant, strconv.FormatInt(planID, 10), reason)
	if err != nil {
		return Receipt{}, err
	}
	x := pendingSale{kind: records.Granted, currency: currency, id: journal.IDOf(user.ID, operationGrant, c.Key), actor: actor, reason: reason}
	return receipt(once(ctx, b, user.ID, c, func() (*ledger.Reservation, error) {
		var found bool
		if x.plan, found = plans.Find(planID); !found {
			return nil, fault.At(fault.PlanNotFound, "plan_id", "there is no plan %d", planID)
		}
		return nil, nil
	}, func(t *ledger.Txn, now time.Time) (Receipt, audit.Event, error) {
		return x.begin(t, now, user.ID)
	}))
}

// receipt sets Replayed in a receipt.
func receipt(r Receipt, replayed bool, err error) (Receipt, error) {
	if err != nil {
		return Receipt{}, err
	}
	r.Replayed = replayed
	return r, nil
}
