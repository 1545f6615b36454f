package billing

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// huge is a plan with so large a quota that the system accounts of a day overflow at the second
// period.
var huge = Plan{
	ID: 9, Title: "Huge", Price: 1, Quota: money.Max / 3 * 2,
	Duration: calendar.Duration{Count: 3, Unit: calendar.Days}, QuotaReset: calendar.Day,
}

// sources returns the accounts of periods that ann may spend from now.
func (f *fixture) sources() (accounts []journal.Account) {
	f.t.Helper()
	err := f.store.Update(f.t.Context(), func(t storage.Txn) error {
		r, err := records.ReadSummary(t, f.user, f.clock.Now())
		if err != nil {
			return err
		}
		_, q, err := sources(t, f.clock.Now(), r)
		accounts = q.accounts
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return accounts
}

func TestAUserSpendsOtherMoneyWhileAPeriodCannotBeOpened(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.plans = plansOf(t, append(testPlans[:len(testPlans):len(testPlans)], huge)...)
	core, logs := observer.New(zap.ErrorLevel)
	f.log = zap.New(core)
	f.credit(100)
	f.mustBuy(huge.ID, "k")
	f.mustBuy(1, "l")

	f.clock.Set(date(2026, 2, 1, 0))
	bob, err := f.directory.CreateUser(t.Context(), "operator", "bob")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Credit(t.Context(), "operator", bob.ID, 1, "for the test", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Buy(t.Context(), f.plans, "USD", bob.ID, huge.ID, "k"); err != nil {
		t.Fatal(err) // now the system accounts of this day are full
	}
	if _, err := f.buy(huge.ID, "m"); codeOf(err) != fault.AmountOutOfRange {
		t.Fatalf("one more purchase returned %v, so ann's period can be opened", err)
	}

	f.mustSpend(13)
	f.wantWallet(88)
	f.credit(2)
	f.mustApply(noticeOf(f.mustOpen(newMockProvider()), "paid", 100), Applied)
	f.wantWallet(190)
	if logs.Len() != 0 {
		t.Errorf("the log has %v", logs.All())
	}
	f.clock.Set(date(2026, 2, 1, 1))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if logs.Len() != 1 || logs.All()[0].ContextMap()["subscription_id"] != int64(1) {
		t.Errorf("the sweep has logged %v", logs.All())
	}

	f.clock.Set(date(2026, 2, 2, 0)) // the system accounts of the next day are empty
	f.mustSpend(huge.Quota)
	f.wantWallet(190)
	f.wantQuota(1, records.Active, huge.Quota, huge.Quota, date(2026, 2, 3, 0))
}

func TestAPeriodIsNotGrantedToAnAccountWithEntries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.damaged = true // the grant below belongs to no period
	f.credit(100)
	f.mustBuy(2, "k")
	february := date(2026, 2, 1, 0)
	err := f.store.Update(t.Context(), func(txn storage.Txn) error {
		_, err := journal.Book(txn, f.clock.Now(), journal.Transfer{
			ID: journal.IDOf("before"), Kind: journal.Grant, User: f.user,
			Legs: journal.LegsBetween(journal.Granted, journal.Quota(f.user, 1, february), 5),
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.clock.Set(february)
	f.mustSpend(1)
	f.wantWallet(79)
	if left := f.quotaLeft(1, february); left != 5 {
		t.Errorf("the period has %d, want the 5 from before", left)
	}
}

func TestSubscriptionsContinueAfterTheClockWasAhead(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(f *fixture){
		"a call":     func(f *fixture) { f.mustSpend(1) },
		"a sweep":    func(f *fixture) { f.must(f.Sweep(f.t.Context())) },
		"a credit":   func(f *fixture) { f.credit(1) },
		"a purchase": func(f *fixture) { f.mustBuy(1, "other") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.credit(100)
			f.mustBuy(1, "a") // until February 28th
			f.mustBuy(2, "b") // until April 30th, 5 a month
			before := f.clock.Now()
			f.clock.Set(before.AddDate(2, 0, 0))
			f.must(f.Sweep(t.Context()))
			meanwhile(f)
			f.clock.Set(before.Add(time.Hour))
			f.close()
			f.open()
			left := f.funds().Wallet.Balance
			f.mustSpend(17)
			f.wantWallet(left)

			r := f.mustRenew(1, "r")
			if r.EndTime != date(2026, 3, 28, 12).Unix() {
				t.Errorf("the renewed subscription ends %s", time.Unix(r.EndTime, 0).UTC())
			}
			f.mustSpend(12)
			f.wantWallet(left - 10)
		})
	}
}

func TestOnlyRunningSubscriptionsAreSources(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(6, "a") // for three days
	f.mustBuy(1, "b") // for a month
	for _, row := range []struct {
		day  time.Time
		want int
	}{{date(2026, 2, 3, 11), 2}, {date(2026, 2, 3, 12), 1}, {date(2026, 2, 28, 12), 0}} {
		f.clock.Set(row.day)
		if sources := f.sources(); len(sources) != row.want {
			t.Errorf("at %s the sources are %v, want %d", row.day, sources, row.want)
		}
	}
}
