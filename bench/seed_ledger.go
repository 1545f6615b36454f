package main

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// ledgerSeed is the order of the role that fills a ledger.
type ledgerSeed struct {
	Entries int64 // at least
}

// seedLedger gives a site the store of a gateway that has been in use.
func (b *bench) seedLedger(ctx context.Context, s *site) error {
	var done struct{}
	return b.fill(ctx, s, roleSeedLedger, ledgerSeed{s.entries}, &done)
}

const (
	// seededUsers is the number of users in the ledger. No two calls of one
	// transaction are of the same user, so each call makes two entries: one of
	// the user's wallet and one of the budget of their key.
	seededUsers = 1024

	// seededDays is the number of days over which the calls are spread.
	seededDays = 60
)

// fill makes the entries. All are in accounts of users; system accounts have
// none. A quarter of them are credits, with one entry each. The rest come from
// calls, which the ledger combines into as few transfers as it can.
func (o ledgerSeed) fill(ctx context.Context, b *testStore) (done struct{}, err error) {
	credits := int(o.Entries / 4)
	if err := b.credit(ctx, "credits", credits, seededUsers, 1000*money.Unit); err != nil {
		return done, err
	}
	calls := (o.Entries - int64(credits) + 1) / 2
	const cost = 3_388_200
	for n := range calls {
		user := userName(int(n % seededUsers))
		key := fmt.Sprintf("key_%08d", n%seededUsers)
		payer := ledger.Payer{User: user, Budgets: ledger.Budgets{ledger.KeyBudget(key, 100_000*money.Unit, calendar.Month)}}
		r, err := b.ledger.Reserve(ctx, payer, 5*cost)
		if err != nil {
			return done, err
		}
		ago := time.Duration(calls-n) * (seededDays * 24 * time.Hour / time.Duration(calls))
		r.Settle(journal.Call{
			ID: fmt.Sprintf("req_%022d", n), Time: b.store.Now().Add(-ago).UnixMilli(), User: user, Key: key,
			Model: model, Route: "messages", Status: 200, Ended: usage.Complete, Usage: usage.Reported,
			Tokens: usage.Tokens{Input: 212, Output: 163, CacheRead: 1024}, Cost: cost, FirstByte: 640, Duration: 2210,
		}, cost, true)
	}
	return done, nil
}
