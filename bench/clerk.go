package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// clerkOrder is what a clerk must know.
type clerkOrder struct {
	Dir     string // of the store; new
	Entries int64  // of the ledger, at least
}

// fillLedger gives a site the store of a gateway that has been in use.
func (b *bench) fillLedger(ctx context.Context, s *site) error {
	var done struct{}
	o := clerkOrder{Dir: filepath.Join(s.dir, "store"), Entries: s.entries}
	return b.hire(ctx, roleClerk, slices.Concat(b.others, b.one), o, &done)
}

// serveClerk is the process that fills a ledger.
func serveClerk(in io.Reader, out io.Writer) error {
	return serveOrder(in, out, func(ctx context.Context, o clerkOrder) (done struct{}, err error) {
		b, err := openBooks(ctx, o.Dir)
		if err != nil {
			return done, err
		}
		err = b.fill(ctx, o.Entries)
		if err == nil {
			err = atRest(ctx, os.Getpid()) // so that who opens it finds nothing left to merge
		}
		return done, errors.Join(err, b.close())
	})
}

const (
	// clerkUsers is how many users the ledger has. No two calls of one
	// transaction are of one user, so that each call makes two entries: of his
	// wallet, and of the budget of his key.
	clerkUsers = 1024

	// clerkDays is over how many days the calls are spread.
	clerkDays = 60
)

// fill makes a ledger of so many entries. A quarter are credits of wallets, each
// a transfer of two entries; the rest come from calls, of which as many are one
// transfer as the ledger's settler takes at once.
func (b *books) fill(ctx context.Context, entries int64) error {
	credits := int(entries / 8)
	if err := b.credit(ctx, "credits", credits, clerkUsers, 1000*money.Unit); err != nil {
		return err
	}
	calls := (entries - 2*int64(credits) + 1) / 2
	const cost = 3_388_200
	for n := range calls {
		user := userName(int(n % clerkUsers))
		key := fmt.Sprintf("key_%08d", n%clerkUsers)
		payer := ledger.Payer{User: user, Budgets: [2]ledger.Budget{ledger.KeyBudget(key, 100_000*money.Unit, calendar.Month)}}
		r, err := b.ledger.Reserve(ctx, payer, 5*cost)
		if err != nil {
			return err
		}
		ago := time.Duration(calls-n) * (clerkDays * 24 * time.Hour / time.Duration(calls))
		r.Settle(ledger.Call{
			ID: fmt.Sprintf("req_%022d", n), Time: b.store.Now().Add(-ago).UnixMilli(), User: user, Key: key,
			Model: model, Route: "messages", Status: 200, Ended: usage.Complete, Usage: usage.Reported,
			Tokens: usage.Tokens{Input: 212, Output: 163, CacheRead: 1024}, Cost: cost, FirstByte: 640, Duration: 2210,
		}, cost, true)
	}
	return nil
}
