package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// shopping is the trial of purchases beside commits of one small record, in one
// process and one store. Each purchase is made under a key of its own.
type shopping struct {
	Buyers int // at once
	Users  int // who buy in turn
}

// shopOrder is what a shop must know.
type shopOrder struct {
	shopping
	Turns   turns
	Dir     string // for the store; new
	Profile string // file for a CPU profile of all turns; empty for none
}

// pair implements trial.
func (s shopping) pair(ctx context.Context, b *bench, name string) (p pair, err error) {
	dir, err := os.MkdirTemp(b.dir, name+"-")
	if err != nil {
		return p, err
	}
	o := shopOrder{shopping: s, Turns: b.turns, Dir: dir}
	if b.profiles != "" {
		o.Profile = filepath.Join(b.profiles, name+".pprof")
	}
	return p, b.hire(ctx, roleShop, b.one, o, &p)
}

// serveShop is the process in which plans are sold.
func serveShop(in io.Reader, out io.Writer) error {
	return serveOrder(in, out, func(ctx context.Context, o shopOrder) (p pair, err error) {
		b, err := openBooks(ctx, o.Dir)
		if err != nil {
			return p, err
		}
		p, err = o.sell(ctx, b)
		return p, errors.Join(err, b.close())
	})
}

// plan is what is sold: a quota for a month.
var plan = billing.Plan{
	ID: 1, Title: "Starter", Price: 9_900_000_000, Quota: 12 * money.Unit,
	Duration: calendar.Duration{Count: 1, Unit: calendar.Months}, QuotaReset: calendar.Month,
}

// sell lets commits and purchases take turns.
func (o shopOrder) sell(ctx context.Context, b *books) (p pair, err error) {
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
	desk := billing.NewDesk(b.store, b.ledger, directory, unread())
	crews := [2]*crew{{hands: o.Buyers, do: func(n int64) error {
		return b.store.Update(ctx, func(t storage.Txn) error {
			return t.Set(fmt.Appendf(nil, "bench/%012d", n), []byte("a small record"), time.Time{})
		})
	}}, {hands: o.Buyers, do: func(n int64) error {
		_, err := desk.Buy(ctx, plans, "USD", userName(int(n)%o.Users), plan.ID, strconv.FormatInt(n, 10))
		return err
	}}}

	if err := alternate(o.Turns, o.Profile, crews[:]...); err != nil {
		return p, err
	}
	return pair{crews[0].sample, crews[1].sample}, nil
}
