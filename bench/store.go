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
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
)

// books are a store on disk and its ledger, opened as a gateway opens them.
type books struct {
	store  *storage.Store
	ledger *ledger.Ledger
}

// openBooks opens the store in a directory, which is made if need be. Posts are
// committed without waiting for more of them.
func openBooks(ctx context.Context, dir string) (*books, error) {
	guest, cancel := caddy.NewContext(caddy.Context{Context: ctx})
	defer cancel()
	module := &badger.Badger{Path: dir}
	if err := module.Provision(guest); err != nil {
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
	l, err := ledger.Open(ctx, store, ledger.Options{Sources: billing.Sources(store.Now), Logger: unread()})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &books{store, l}, nil
}

// withBooks does something with the store in a directory, and closes it.
func withBooks(ctx context.Context, dir string, do func(b *books) error) error {
	b, err := openBooks(ctx, dir)
	if err != nil {
		return err
	}
	return errors.Join(do(b), b.close())
}

// close waits until all is settled, and closes the store.
func (b *books) close() error {
	b.ledger.Close(context.Background())
	return b.store.Close()
}

// storeOrder is an order that is carried out in a store of its own.
type storeOrder[What any] struct {
	Dir  string // of the store; new
	What What
}

// inStore is a process that carries out such an order.
func inStore[What, Answer any](carryOut func(What, context.Context, *books) (Answer, error)) func(io.Reader, io.Writer) error {
	return func(in io.Reader, out io.Writer) error {
		return serveOrder(in, out, func(ctx context.Context, o storeOrder[What]) (answer Answer, err error) {
			err = withBooks(ctx, o.Dir, func(b *books) (err error) {
				answer, err = carryOut(o.What, ctx, b)
				return err
			})
			return answer, err
		})
	}
}

// filling is a process that fills a store for somebody else. It opens the store
// once more and waits, so that whoever opens it then finds nothing left to merge:
// what is in memory is written as one more table when a store is closed, and that
// may be the one with which merging begins.
func filling[What, Answer any](fill func(What, context.Context, *books) (Answer, error)) func(io.Reader, io.Writer) error {
	return func(in io.Reader, out io.Writer) error {
		return serveOrder(in, out, func(ctx context.Context, o storeOrder[What]) (answer Answer, err error) {
			err = withBooks(ctx, o.Dir, func(b *books) (err error) {
				answer, err = fill(o.What, ctx, b)
				return err
			})
			if err == nil {
				err = withBooks(ctx, o.Dir, func(*books) error { return atRest(ctx, os.Getpid()) })
			}
			return answer, err
		})
	}
}

// fill gives a site a store that a process in a role fills.
func (b *bench) fill(ctx context.Context, s *site, role string, what, answer any) error {
	return b.hire(ctx, role, slices.Concat(b.others, b.one), storeOrder[any]{filepath.Join(s.dir, "store"), what}, answer)
}

// creditsTogether is how many credits are one transaction.
const creditsTogether = 256

// credit gives users money in turn, in so many credits. It is done before
// anything is spent: no balances in memory follow it.
func (b *books) credit(ctx context.Context, round string, credits, users int, amount money.Amount) error {
	names := make([]string, users)
	for n := range names {
		names[n] = userName(n)
	}
	return b.creditEach(ctx, round, credits, names, amount)
}

// creditEach is credit for users of these ids.
func (b *books) creditEach(ctx context.Context, round string, credits int, users []string, amount money.Amount) error {
	for from := 0; from < credits; from += creditsTogether {
		err := b.store.Update(ctx, func(t storage.Txn) error {
			for n := from; n < min(from+creditsTogether, credits); n++ {
				user := users[n%len(users)]
				_, err := ledger.Book(t, b.store.Now(), ledger.Transfer{
					ID: ledger.IDOf("bench", round, strconv.Itoa(n)), Kind: ledger.Credit, User: user,
					Legs: ledger.LegsBetween(ledger.Operator, ledger.Wallet(user), amount), Actor: "operator", Reason: "to be spent in a benchmark",
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

// unread is a log that is written like a gateway's, and read by nobody.
func unread() *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(io.Discard), zapcore.InfoLevel))
}
