package main

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// clerkOrder is what must be known to fill a ledger.
type clerkOrder struct {
	Entries int64 // at least
}

// fillLedger gives a site the store of a gateway that has been in use.
func (b *bench) fillLedger(ctx context.Context, s *site) error {
	var done struct{}
	return b.fill(ctx, s, roleClerk, clerkOrder{s.entries}, &done)
}

const (
	// clerkUsers is how many users the ledger has. No two calls of one
	// transaction are of one user, so that each call makes two entries: of his
	// wallet, and of the budget of his key.
	clerkUsers = 1024

	// clerkDays is over how many days the calls are spread.
	clerkDays = 60
)

// fill makes the entries, all of accounts of users: the house has none. A quarter
// are of credits, one each; the rest come from calls, of which as many are one
// transfer as the ledger's settler takes at once.
func (o clerkOrder) fill(ctx context.Context, b *books) (done struct{}, err error) {
	credits := int(o.Entries / 4)
	if err := b.credit(ctx, "credits", credits, clerkUsers, 1000*money.Unit); err != nil {
		return done, err
	}
	calls := (o.Entries - int64(credits) + 1) / 2
	const cost = 3_388_200
	for n := range calls {
		user := userName(int(n % clerkUsers))
		key := fmt.Sprintf("key_%08d", n%clerkUsers)
		payer := ledger.Payer{User: user, Budgets: ledger.Budgets{ledger.KeyBudget(key, 100_000*money.Unit, calendar.Month)}}
		r, err := b.ledger.Reserve(ctx, payer, 5*cost)
		if err != nil {
			return done, err
		}
		ago := time.Duration(calls-n) * (clerkDays * 24 * time.Hour / time.Duration(calls))
		r.Settle(ledger.Call{
			ID: fmt.Sprintf("req_%022d", n), Time: b.store.Now().Add(-ago).UnixMilli(), User: user, Key: key,
			Model: model, Route: "messages", Status: 200, Ended: usage.Complete, Usage: usage.Reported,
			Tokens: usage.Tokens{Input: 212, Output: 163, CacheRead: 1024}, Cost: cost, FirstByte: 640, Duration: 2210,
		}, cost, true)
	}
	return done, nil
}
