package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
)

// testStore is a store on disk and its ledger, opened as a gateway opens them.
type testStore struct {
	store  *storage.Store
	ledger *ledger.Ledger
}

// openTestStore opens the store in a directory, which it creates if necessary.
// The store commits changes without waiting for more of them.
func openTestStore(ctx context.Context, dir string) (*testStore, error) {
	caddyCtx, cancel := caddy.NewContext(caddy.Context{Context: ctx})
	defer cancel()
	module := &badger.Badger{Path: dir}
	if err := module.Provision(caddyCtx); err != nil {
		return nil, err
	}
	engine, err := module.Open(ctx)
	if err != nil {
		return nil, err
	}
	store := storage.New(engine, storage.Options{Gather: -1})
	if err := storage.CheckFormat(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	l, err := ledger.Open(ctx, store, ledger.Options{Sources: billing.Sources(store.Now), Logger: discardLogger()})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &testStore{store, l}, nil
}

// withTestStore opens the store in a directory, calls do with it and closes it.
func withTestStore(ctx context.Context, dir string, do func(b *testStore) error) error {
	b, err := openTestStore(ctx, dir)
	if err != nil {
		return err
	}
	return errors.Join(do(b), b.close())
}

// close waits until all calls are settled, and closes the store.
func (b *testStore) close() error {
	b.ledger.Close(context.Background())
	return b.store.Close()
}

// storeOrder is an order that runs in its own store.
type storeOrder[What any] struct {
	Dir  string // of the store; new
	What What
}

// inStore returns a role that carries out such an order.
func inStore[What, Answer any](carryOut func(What, context.Context, *testStore) (Answer, error)) func(io.Reader, io.Writer) error {
	return func(in io.Reader, out io.Writer) error {
		return serveOrder(in, out, func(ctx context.Context, o storeOrder[What]) (answer Answer, err error) {
			err = withTestStore(ctx, o.Dir, func(b *testStore) (err error) {
				answer, err = carryOut(o.What, ctx, b)
				return err
			})
			return answer, err
		})
	}
}

// filling returns a role that fills a store for another process. After filling,
// it opens the store once more and waits until it is idle. Closing a store
// writes one more table, which may start a merge; without the wait, that merge
// would run during the measurement.
func filling[What, Answer any](fill func(What, context.Context, *testStore) (Answer, error)) func(io.Reader, io.Writer) error {
	return func(in io.Reader, out io.Writer) error {
		return serveOrder(in, out, func(ctx context.Context, o storeOrder[What]) (answer Answer, err error) {
			err = withTestStore(ctx, o.Dir, func(b *testStore) (err error) {
				answer, err = fill(o.What, ctx, b)
				return err
			})
			if err == nil {
				err = withTestStore(ctx, o.Dir, func(*testStore) error { return awaitIdle(ctx, os.Getpid()) })
			}
			return answer, err
		})
	}
}

// fill gives a site a store that a process in a role fills.
func (b *bench) fill(ctx context.Context, s *site, role string, what, answer any) error {
	return b.runRole(ctx, role, slices.Concat(b.others, b.one), storeOrder[any]{filepath.Join(s.dir, "store"), what}, answer)
}

// creditsTogether is the number of credits in one transaction.
const creditsTogether = 256

// credit gives users money in turn, in this many credits. It must run before
// anything is spent, because it does not update balances in memory.
func (b *testStore) credit(ctx context.Context, round string, credits, users int, amount money.Amount) error {
	names := make([]string, users)
	for n := range names {
		names[n] = userName(n)
	}
	return b.creditEach(ctx, round, credits, names, amount)
}

// creditEach is credit for users with these ids.
func (b *testStore) creditEach(ctx context.Context, round string, credits int, users []string, amount money.Amount) error {
	for from := 0; from < credits; from += creditsTogether {
		err := b.store.Update(ctx, func(t storage.Txn) error {
			for n := from; n < min(from+creditsTogether, credits); n++ {
				user := users[n%len(users)]
				_, err := journal.Book(t, b.store.Now(), journal.Transfer{
					ID: journal.IDOf("bench", round, strconv.Itoa(n)), Kind: journal.Credit, User: user,
					Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), amount), Actor: "operator", Reason: "to be spent in a benchmark",
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// discardLogger returns a logger that encodes lines like a gateway's and
// discards them.
func discardLogger() *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(io.Discard), zapcore.InfoLevel))
}
