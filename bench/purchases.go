package main

import (
	"context"
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

// plan is the plan that is bought: a monthly quota.
var plan = billing.Plan{
	ID: 1, Title: "Starter", Price: 9_900_000_000, Quota: 12 * money.Unit,
	Duration: calendar.Duration{Count: 1, Unit: calendar.Months}, QuotaReset: calendar.Month,
}

// buyPlans alternates commits and purchases. Each purchase has its own
// idempotency key.
func (o besideOrder) buyPlans(ctx context.Context, b *testStore) (p pair, err error) {
	directory, err := identity.Open(ctx, b.store, nil, discardLogger())
	if err != nil {
		return p, err
	}
	plans, err := billing.NewPlans([]billing.Plan{plan})
	if err != nil {
		return p, err
	}
	if err := b.credit(ctx, "wallets", o.Users, o.Users, 10_000*money.Unit); err != nil {
		return p, err
	}
	plansService := billing.NewService(b.store, b.ledger, directory, discardLogger())
	buy := func(n int64) error {
		_, err := plansService.Buy(ctx, plans, "USD", userName(int(n)%o.Users), plan.ID, strconv.FormatInt(n, 10))
		return err
	}
	commits := &workers{concurrency: o.Concurrency, do: func(n int64) error { return b.commit(ctx, n) }}
	purchases := &workers{concurrency: o.Concurrency, do: buy, users: o.Users}
	if err := alternate(o.Turns, o.Profile, commits, purchases); err != nil {
		return p, err
	}
	return pair{commits.sample, purchases.sample}, nil
}
