package ledger

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/money"
)

// BenchmarkReserve measures the work of the ledger before a call is sent: a
// reservation under two budgets and its release. It writes nothing.
func BenchmarkReserve(b *testing.B) {
	for _, wallets := range []int{1, 64} {
		b.Run(fmt.Sprintf("wallets=%d", wallets), func(b *testing.B) {
			f := newFixture(b, Options{})
			payers := f.payers(wallets)
			var next atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				payer := payers[int(next.Add(1))%wallets]
				for pb.Next() {
					r, err := f.Reserve(b.Context(), payer, 1000)
					if err != nil {
						b.Error(err)
						return
					}
					r.Release()
				}
			})
		})
	}
}

// BenchmarkReserveAndSettle measures the reservation and the settlement of a call. Records are
// written while the next calls run.
func BenchmarkReserveAndSettle(b *testing.B) {
	for _, test := range []struct {
		wallets  int
		parallel bool
		engine   string
	}{
		{1, false, "memory"}, {64, false, "memory"}, {64, true, "memory"},
		{1, false, "badger"}, {64, false, "badger"}, {64, true, "badger"},
	} {
		b.Run(fmt.Sprintf("wallets=%d/parallel=%v/engine=%s", test.wallets, test.parallel, test.engine), func(b *testing.B) {
			var f *fixture
			if test.engine == "badger" {
				f = onBadger(b, b.TempDir(), 0, Options{})
			} else {
				f = newFixture(b, Options{})
			}
			payers := f.payers(test.wallets)
			var next, ids atomic.Int64
			work := func(payer Payer) {
				r, err := f.Reserve(b.Context(), payer, 1000)
				if err != nil {
					b.Error(err)
					return
				}
				c := aCall(f, strconv.FormatInt(ids.Add(1), 36), payer.User)
				r.Settle(c, 700, true)
			}
			b.ReportAllocs()
			b.ResetTimer()
			if test.parallel {
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) {
					payer := payers[int(next.Add(1))%test.wallets]
					for pb.Next() {
						work(payer)
					}
				})
			} else {
				for n := 0; b.Loop(); n++ {
					work(payers[n%test.wallets])
				}
			}
			f.settled()
		})
	}
}

// payers returns users with money whose balances are in the cache.
func (f *fixture) payers(n int) []Payer {
	payers := make([]Payer, n)
	for i := range payers {
		user := userNumber(i)
		f.credit(user, 1_000_000*money.Unit)
		payers[i] = Payer{User: user, Budgets: Budgets{
			{Scope: "key/1", Limit: 1_000_000 * money.Unit, Reset: calendar.Month},
			{Scope: "user", Limit: 1_000_000 * money.Unit, Reset: calendar.Day},
		}}
		f.reserve(payers[i], 1).Release()
	}
	return payers
}

// BenchmarkVerify measures the time of a verification per record, over a store in memory.
func BenchmarkVerify(b *testing.B) {
	f := newFixture(b, Options{})
	for _, payer := range f.payers(100) {
		for n := range 50 {
			f.reserve(payer, 1000).Settle(aCall(f, strconv.Itoa(n), payer.User), 700, true)
		}
	}
	f.settled()
	b.ReportAllocs()
	b.ResetTimer()
	var records int64
	for b.Loop() {
		report := f.checkVerified()
		records += report.Entries + report.Transfers + report.Calls
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(records), "ns/record")
}

func userNumber(n int) string { return fmt.Sprintf("user_%06d", n) }
