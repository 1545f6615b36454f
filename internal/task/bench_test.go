package task

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
)

// BenchmarkSubmitDurably measures submissions by 64 at once, each of whom waits
// until his is durable and a backend has taken it, which this one does at once.
func BenchmarkSubmitDurably(b *testing.B) {
	const hands, users = 64, 1000
	s := onDisk(b)
	l, err := ledger.Open(b.Context(), s, ledger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	err = s.Update(b.Context(), func(t storage.Txn) error {
		for n := range users {
			user := userNumber(n)
			_, err := ledger.Book(t, s.Now(), ledger.Transfer{
				ID: ledger.IDOf("opening", user), Kind: ledger.Credit, User: user,
				Legs: ledger.Move(ledger.Operator, ledger.Wallet(user), 1_000_000*money.Unit),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	works := newWorks()
	works.hold = nil
	e := Open(s, l, Options{})
	if err := e.Serve(Config{Unfinished: 1 << 30, Backends: []Backend{{Name: "works", Backend: works}}}); err != nil {
		b.Fatal(err)
	}
	before := s.Stats()
	var next atomic.Int64
	var crew sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range hands {
		crew.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				x := video()
				x.Payer.User = userNumber(int(n) % users)
				x.Key = "key_" + x.Payer.User
				if _, _, err := e.Submit(b.Context(), x); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	crew.Wait()
	b.StopTimer()
	stats := s.Stats()
	b.ReportMetric(float64(stats.Committed-before.Committed)/float64(stats.Batches-before.Batches), "closures/commit")
	e.Close(context.Background())
	l.Close(context.Background())
	if err := s.Close(); err != nil {
		b.Error(err)
	}
}

func userNumber(n int) string { return fmt.Sprintf("user_%06d", n) }

// onDisk opens a store in a new directory, as gateways do.
func onDisk(b *testing.B) *storage.Store {
	b.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	module := &badger.Badger{Path: b.TempDir()}
	if err := module.Provision(ctx); err != nil {
		b.Fatal(err)
	}
	engine, err := module.Open(ctx)
	if err != nil {
		b.Fatal(err)
	}
	return storage.New(engine, storage.Options{Gather: -1})
}
