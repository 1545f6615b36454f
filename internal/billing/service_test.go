package billing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	ledgerverify "github.com/caddy-modelgate/modelgate/internal/ledger/verify"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/billing/verify"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// fixture is a Service over a store in memory with a test clock and injected faults. When the test
// ends, the store is verified.
type fixture struct {
	*Service
	t      testing.TB
	clock  *storagetest.Clock
	base   storage.Engine
	engine *storagetest.Faulty // over base
	user   string              // the id of ann
	plans  *Plans

	damaged bool // the test has damaged the store, so it is not verified
}

// unclosed is an engine that keeps its content when its store is closed, as a directory does.
type unclosed struct{ storage.Engine }

func (unclosed) Close() error { return nil }

// Sole implements [storage.Sole], as the engine of production does.
func (unclosed) Sole() bool { return true }

// The plans of most tests.
var testPlans = []Plan{
	{ID: 1, Title: "Starter", Price: 10, Quota: 12, Duration: calendar.Duration{Count: 1, Unit: calendar.Months}},
	{ID: 2, Title: "Monthly", Price: 20, Quota: 5, Duration: calendar.Duration{Count: 3, Unit: calendar.Months}, QuotaReset: calendar.Month},
	{ID: 3, Title: "Free", Quota: 3, Duration: calendar.Duration{Count: 30, Unit: calendar.Days}},
	{ID: 4, Title: "Gone", Price: 10, Quota: 1, Duration: calendar.Duration{Count: 1, Unit: calendar.Days}, Disabled: true},
	{ID: 5, Title: "Twice", Price: 1, Quota: 1, Duration: calendar.Duration{Count: 1, Unit: calendar.Days}, PurchaseLimit: 2},
	{ID: 6, Title: "Daily", Price: 7, Quota: 2, Duration: calendar.Duration{Count: 3, Unit: calendar.Days}, QuotaReset: calendar.Day},
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{
		t:     t,
		clock: storagetest.NewClock(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)),
		base:  unclosed{memory.New()},
		plans: plansOf(t, testPlans...),
	}
	f.open()
	t.Cleanup(func() {
		f.checkStore()
		f.close()
	})
	user, err := f.directory.CreateUser(t.Context(), "operator", "ann")
	if err != nil {
		t.Fatal(err)
	}
	f.user = user.ID
	return f
}

func plansOf(t testing.TB, rows ...Plan) *Plans {
	t.Helper()
	plans, err := NewPlans(rows)
	if err != nil {
		t.Fatal(err)
	}
	return plans
}

// open opens the services over the engine, as a start of the process does.
func (f *fixture) open() {
	f.t.Helper()
	f.engine = storagetest.NewFaulty(f.base)
	store := storage.New(f.engine, storage.Options{Clock: f.clock.Now, Gather: -1})
	directory, err := identity.Open(context.Background(), store, nil, zap.NewNop())
	if err != nil {
		f.t.Fatal(err)
	}
	l, err := ledger.Open(context.Background(), store, ledger.Options{Sources: Sources(store.Now)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.Service = NewService(store, l, directory, zap.NewNop())
}

func (f *fixture) close() {
	f.ledger.Close(context.Background())
	_ = f.store.Close()
}

// checkStore verifies the store.
func (f *fixture) checkStore() {
	f.t.Helper()
	if f.damaged || f.store.Err() != nil {
		return
	}
	err := f.store.View(context.Background(), func(r storage.Reader) error {
		_, err := ledgerverify.Verify(context.Background(), r, f.clock.Now(),
			func(p ledgerverify.Problem) { f.t.Errorf("%s: %s", p.Where, p.What) },
			func(r storage.Reader, _ func(ledgerverify.Problem)) error {
				return verify.Check(r, f.clock.Now(), func(format string, args ...any) { f.t.Errorf(format, args...) })
			})
		return err
	})
	if err != nil {
		f.t.Error(err)
	}
	if s := f.ledger.Stats(); s.Open != 0 || s.Reserved != 0 || s.Mismatches != 0 {
		f.t.Errorf("the ledger has open reservations or mismatches: %+v", s)
	}
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// credit credits ann's wallet.
func (f *fixture) credit(amount money.Amount) {
	f.t.Helper()
	if _, err := f.Credit(f.t.Context(), "operator", f.user, amount, "for the test", ""); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) funds() ledger.Funds {
	f.t.Helper()
	funds, err := f.ledger.Funds(f.t.Context(), f.user)
	if err != nil {
		f.t.Fatal(err)
	}
	return funds
}

// wantWallet checks the balance of ann's wallet.
func (f *fixture) wantWallet(want money.Amount) {
	f.t.Helper()
	if have := f.funds().Wallet.Balance; have != want {
		f.t.Fatalf("the wallet has %d, want %d", have, want)
	}
}

func (f *fixture) buy(plan int64, key string) (Receipt, error) {
	return f.Buy(context.Background(), f.plans, "USD", f.user, plan, key)
}

func (f *fixture) mustBuy(plan int64, key string) Receipt {
	f.t.Helper()
	receipt, err := f.buy(plan, key)
	if err != nil {
		f.t.Fatal(err)
	}
	return receipt
}

func (f *fixture) renew(id int64, key string) (Receipt, error) {
	return f.Renew(context.Background(), f.plans, "USD", f.user, id, key)
}

func (f *fixture) mustRenew(id int64, key string) Receipt {
	f.t.Helper()
	receipt, err := f.renew(id, key)
	if err != nil {
		f.t.Fatal(err)
	}
	return receipt
}

// subscription returns the present state of ann's subscription with an id.
func (f *fixture) subscription(id int64) Subscription {
	f.t.Helper()
	all, _, err := f.Subscriptions(f.t.Context(), f.user, 0, math.MaxInt64)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range all {
		if s.ID == id {
			return s
		}
	}
	f.t.Fatalf("there is no subscription %d among %v", id, all)
	return Subscription{}
}

// spend makes a call with a cost and returns the charge.
func (f *fixture) spend(cost money.Amount) (money.Amount, error) {
	f.t.Helper()
	r, err := f.ledger.Reserve(f.t.Context(), ledger.Payer{User: f.user}, cost)
	if err != nil {
		return 0, err
	}
	now := f.clock.Now()
	charged := r.Settle(journal.Call{
		ID: fmt.Sprintf("call-%d", now.UnixNano()), Time: now.UnixMilli(), User: f.user, Key: "key_1", Model: "m",
		Ended: usage.Complete, Usage: usage.Reported,
	}, cost, true)
	f.clock.Set(now.Add(time.Microsecond)) // the next call has another id
	f.settled()
	return charged, nil
}

// settled waits until the charges of calls are durable, because they are written later.
func (f *fixture) settled() {
	f.t.Helper()
	for f.ledger.Stats().Queued > 0 {
		if err := f.store.Flush(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) mustSpend(cost money.Amount) {
	f.t.Helper()
	if charged, err := f.spend(cost); err != nil || charged != cost {
		f.t.Fatalf("a call with the cost %d was charged %d, %v", cost, charged, err)
	}
}

func codeOf(err error) fault.Code {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

// parallel calls fn n times at once and returns the errors.
func parallel(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wait.Go(func() {
			<-begin
			errs[i] = fn(i)
		})
	}
	close(begin)
	wait.Wait()
	return errs
}

// date returns a time in UTC.
func date(year int, month time.Month, day, hour int) time.Time {
	return time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
}
