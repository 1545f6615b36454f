package billing

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// BenchmarkBuy measures purchases by 64 goroutines. Each purchase waits until it is durable. Users
// take turns and buy more than once: subscriptions/user reports how many subscriptions they have at
// the end.
func BenchmarkBuy(b *testing.B) {
	for _, engine := range []struct {
		name string
		open func(*testing.B) storage.Engine
	}{
		{"memory", func(*testing.B) storage.Engine { return memory.New() }},
		{"badger", onDisk},
	} {
		b.Run("engine="+engine.name, func(b *testing.B) {
			const buyers, users = 64, 4000
			d, s := busyService(b, engine.open(b), users)
			plans := plansOf(b, Plan{
				ID: 1, Title: "Starter", Price: money.Unit, Quota: money.Unit,
				Duration: calendar.Duration{Count: 1, Unit: calendar.Months}, QuotaReset: calendar.Month,
			})
			before := s.Stats()
			var next atomic.Int64
			var group sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range buyers {
				group.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if _, err := d.Buy(b.Context(), plans, "USD", userNumber(n%users), 1, strconv.FormatInt(n, 10)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			stats := s.Stats()
			b.ReportMetric(float64(stats.Committed-before.Committed)/float64(stats.Batches-before.Batches), "closures/commit")
			b.ReportMetric(float64(b.N)/users, "subscriptions/user")
		})
	}
}

// busyService returns a Service over an engine with users who have money.
func busyService(b *testing.B, engine storage.Engine, users int64) (*Service, *storage.Store) {
	b.Helper()
	s := storage.New(engine, storage.Options{Gather: -1})
	directory, err := identity.Open(b.Context(), s, nil, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	l, err := ledger.Open(b.Context(), s, ledger.Options{Sources: Sources(s.Now)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		l.Close(context.Background())
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	err = s.Update(b.Context(), func(t storage.Txn) error {
		for n := range users {
			user := userNumber(n)
			_, err := journal.Book(t, s.Now(), journal.Transfer{
				ID: journal.IDOf("opening", user), Kind: journal.Credit, User: user,
				Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), 1_000_000*money.Unit),
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
	return NewService(s, l, directory, zap.NewNop()), s
}

func userNumber(n int64) string { return fmt.Sprintf("usr_%06d", n) }

// onDisk opens a Badger engine, as in production, in a new directory.
func onDisk(b *testing.B) storage.Engine {
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
	return engine
}
