package main

import (
	"context"
	"errors"
	"io"
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

// close waits until all is settled, and closes the store.
func (b *books) close() error {
	b.ledger.Close(context.Background())
	return b.store.Close()
}

// creditsTogether is how many credits are one transaction.
const creditsTogether = 256

// credit gives users money in turn, in so many credits. It is done before
// anything is spent: no purse hears of it.
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
					Legs: ledger.Move(ledger.Operator, ledger.Wallet(user), amount), Actor: "operator", Reason: "to be spent in a benchmark",
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
