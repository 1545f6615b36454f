package main

import (
	"context"
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/money"
)

// plan is what is sold: a quota for a month.
var plan = billing.Plan{
	ID: 1, Title: "Starter", Price: 9_900_000_000, Quota: 12 * money.Unit,
	Duration: calendar.Duration{Count: 1, Unit: calendar.Months}, QuotaReset: calendar.Month,
}

// sell lets commits and purchases take turns. Each purchase is made under a key
// of its own.
func (o besideOrder) sell(ctx context.Context, b *books) (p pair, err error) {
	directory, err := identity.Open(ctx, b.store, nil, unread())
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
	service := billing.NewService(b.store, b.ledger, directory, unread())
	buy := func(n int64) error {
		_, err := service.Buy(ctx, plans, "USD", userName(int(n)%o.Users), plan.ID, strconv.FormatInt(n, 10))
		return err
	}
	commits := &crew{hands: o.Hands, do: func(n int64) error { return b.commit(ctx, n) }}
	purchases := &crew{hands: o.Hands, do: buy, users: o.Users}
	if err := alternate(o.Turns, o.Profile, commits, purchases); err != nil {
		return p, err
	}
	return pair{commits.sample, purchases.sample}, nil
}
