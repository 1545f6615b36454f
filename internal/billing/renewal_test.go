package billing

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// quotaLeft returns the balance of a period of a subscription.
func (f *fixture) quotaLeft(id int64, start time.Time) (left money.Amount) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		state, err := journal.ReadState(r, journal.Quota(f.user, id, start))
		left = state.Available()
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return left
}

// wantQuota checks the present quota of a subscription.
func (f *fixture) wantQuota(id int64, status records.Status, total, used money.Amount, reset time.Time) {
	f.t.Helper()
	s := f.subscription(id)
	next := int64(0)
	if !reset.IsZero() {
		next = reset.Unix()
	}
	if s.Status != status || s.QuotaTotal != total || s.QuotaUsed != used || s.NextResetTime != next {
		f.t.Fatalf("at %s the subscription is %s with %d of %d used, next reset %d; want %s with %d of %d, %d",
			f.clock.Now(), s.Status, s.QuotaUsed, s.QuotaTotal, s.NextResetTime, status, used, total, next)
	}
}

func TestAnEarlyRenewalExtendsTheEndAndAddsQuota(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(40)
	start := f.clock.Now()
	if s := f.mustBuy(1, "k"); s.EndTime != date(2026, 2, 28, 12).Unix() {
		t.Fatalf("a month from January 31st ends %s", time.Unix(s.EndTime, 0).UTC())
	}
	f.mustSpend(8)
	f.clock.Set(date(2026, 2, 20, 0))
	r := f.mustRenew(1, "r")
	if r.EndTime != date(2026, 3, 28, 12).Unix() || r.Wallet.Charged != 10 || r.QuotaTotal != 24 || r.QuotaUsed != 8 {
		t.Fatalf("the receipt is %+v", r)
	}
	if left := f.quotaLeft(1, start); left != 16 {
		t.Errorf("the account of the purchase has %d, want 16", left)
	}
	f.mustSpend(16)
	f.wantWallet(20)
	f.wantQuota(1, records.Active, 24, 24, time.Time{})
}

func TestALateRenewalBeginsANewPeriod(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(40)
	f.mustBuy(1, "k")
	f.mustSpend(2)
	f.clock.Set(date(2026, 2, 28, 12)) // the end is excluded
	f.wantQuota(1, records.Expired, 12, 2, time.Time{})
	f.mustSpend(1) // from the wallet: the rest of the quota is lost
	f.wantWallet(29)
	f.clock.Set(date(2026, 5, 31, 6))
	r := f.mustRenew(1, "r")
	if r.EndTime != date(2026, 6, 30, 6).Unix() || r.QuotaTotal != 12 || r.QuotaUsed != 0 || r.StartTime != date(2026, 1, 31, 12).Unix() {
		t.Fatalf("the receipt is %+v", r)
	}
	f.mustSpend(13)
	f.wantWallet(18)
}

func TestEachPeriodHasItsOwnQuota(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(60)
	bought := f.clock.Now()
	r := f.mustBuy(2, "k")
	if r.EndTime != date(2026, 4, 30, 12).Unix() || r.NextResetTime != date(2026, 2, 1, 0).Unix() || r.QuotaTotal != 5 {
		t.Fatalf("the receipt is %+v", r)
	}
	f.mustSpend(4)
	f.clock.Set(date(2026, 2, 1, 0).Add(-time.Second))
	f.wantQuota(1, records.Active, 5, 4, date(2026, 2, 1, 0))
	f.clock.Set(date(2026, 2, 1, 0))
	f.wantQuota(1, records.Active, 5, 0, date(2026, 3, 1, 0))
	f.mustSpend(5)
	f.wantWallet(40)
	f.clock.Set(date(2026, 4, 10, 0)) // nothing reads March, so it is never granted
	f.wantQuota(1, records.Active, 5, 0, time.Time{})
	f.mustSpend(6)
	f.wantWallet(39)
	for start, left := range map[time.Time]money.Amount{bought: 1, date(2026, 2, 1, 0): 0, date(2026, 3, 1, 0): 0, date(2026, 4, 1, 0): 0} {
		if have := f.quotaLeft(1, start); have != left {
			t.Errorf("the period from %s has %d, want %d", start, have, left)
		}
	}
	f.clock.Set(date(2026, 4, 30, 12))
	f.wantQuota(1, records.Expired, 5, 5, time.Time{})
}

func TestARenewalContinuesThePeriodOfAQuotaThatResets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(2, "k") // until April 30th
	f.clock.Set(date(2026, 4, 10, 0))
	f.mustSpend(2)
	r := f.mustRenew(1, "r")
	if r.EndTime != date(2026, 7, 30, 12).Unix() || r.QuotaTotal != 5 || r.QuotaUsed != 2 || r.NextResetTime != date(2026, 5, 1, 0).Unix() {
		t.Fatalf("the receipt is %+v", r)
	}
	f.clock.Set(date(2026, 4, 30, 18)) // after the first end, in the same period
	f.wantQuota(1, records.Active, 5, 2, date(2026, 5, 1, 0))
	f.mustSpend(4)
	f.wantWallet(59)
	f.clock.Set(date(2026, 7, 1, 0))
	f.mustSpend(5)
	f.wantWallet(59)
	f.wantQuota(1, records.Active, 5, 5, time.Time{})
}

func TestARenewalInTheSecondOfThePurchaseGrantsEachPeriodOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(2, "k")
	if r := f.mustRenew(1, "r"); r.QuotaTotal != 5 || r.EndTime != date(2026, 7, 30, 12).Unix() {
		t.Errorf("the receipt is %+v", r)
	}
}

func TestARenewalAtOtherTermsKeepsTheEarlierTerms(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(2, "k") // 5 a month, until April 30th 12:00

	changed := testPlans[1]
	changed.Price, changed.Quota, changed.QuotaReset = 30, 7, calendar.Never
	changed.Duration = calendar.Duration{Count: 1, Unit: calendar.Months}
	f.plans = plansOf(t, changed)
	r := f.mustRenew(1, "never")
	if r.Wallet.Charged != 30 || r.Price != 30 || r.EndTime != date(2026, 5, 30, 12).Unix() || r.QuotaTotal != 5 {
		t.Fatalf("the receipt is %+v", r)
	}
	f.clock.Set(date(2026, 3, 1, 0))
	f.wantQuota(1, records.Active, 5, 0, date(2026, 4, 1, 0))
	f.mustSpend(5)
	f.clock.Set(date(2026, 4, 2, 0))
	f.wantQuota(1, records.Active, 5, 0, date(2026, 4, 30, 12))
	f.clock.Set(date(2026, 4, 30, 12))
	f.wantQuota(1, records.Active, 7, 0, time.Time{})
	f.mustSpend(8)
	f.wantWallet(49)

	changed.Price, changed.Quota, changed.QuotaReset = 1, 2, calendar.Day
	changed.Duration = calendar.Duration{Count: 2, Unit: calendar.Days}
	f.plans = plansOf(t, changed)
	f.mustRenew(1, "day") // from May 30th 12:00
	f.wantQuota(1, records.Active, 7, 7, date(2026, 5, 30, 12))
	f.clock.Set(date(2026, 5, 30, 12))
	f.wantQuota(1, records.Active, 2, 0, date(2026, 5, 31, 0))
	f.mustSpend(2)
	f.clock.Set(date(2026, 5, 31, 0))
	f.mustSpend(2)
	f.wantQuota(1, records.Active, 2, 2, date(2026, 6, 1, 0))
	f.wantWallet(48)
}

func TestEachSuccessfulParallelRenewalExtendsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(10 + 5*10 + 9)
	f.mustBuy(1, "k")
	ends := make([]int64, 40)
	var sold []int64
	for i, err := range parallel(40, func(i int) error {
		r, err := f.renew(1, strconv.Itoa(i/2)) // each key twice
		ends[i] = r.EndTime
		return err
	}) {
		switch {
		case err == nil:
			sold = append(sold, ends[i])
		case codeOf(err) != fault.InsufficientBalance:
			t.Error(err)
		}
	}
	slices.Sort(sold)
	sold = slices.Compact(sold)
	want := []int64{
		date(2026, 3, 28, 12).Unix(), date(2026, 4, 28, 12).Unix(), date(2026, 5, 28, 12).Unix(),
		date(2026, 6, 28, 12).Unix(), date(2026, 7, 28, 12).Unix(),
	}
	if !slices.Equal(sold, want) {
		t.Errorf("the ends were %v, want %v", sold, want)
	}
	if s := f.subscription(1); s.EndTime != want[4] || s.QuotaTotal != 72 {
		t.Errorf("the subscription is %+v", s)
	}
	f.wantWallet(9)
}

func TestCallsArePaidInTheUsersOrder(t *testing.T) {
	t.Parallel()
	for preference, left := range map[records.Preference][3]money.Amount{ // of the quota that ends sooner, of the other, of the wallet
		"":                        {0, 10, 13},
		records.SubscriptionFirst: {0, 10, 13},
		records.WalletFirst:       {2, 12, 9},
		records.SubscriptionOnly:  {0, 10, 13},
		records.WalletOnly:        {2, 12, 9},
	} {
		t.Run(string(preference), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.credit(30)
			f.mustBuy(1, "a") // ends later
			f.mustBuy(6, "b")
			if preference != "" {
				if err := f.SetPreference(t.Context(), f.user, preference); err != nil {
					t.Fatal(err)
				}
				if p, err := f.Preference(t.Context(), f.user); err != nil || p != preference {
					t.Fatalf("the preference is %q, %v", p, err)
				}
			}
			f.mustSpend(4)
			start := date(2026, 1, 31, 12)
			if have := [3]money.Amount{f.quotaLeft(2, start), f.quotaLeft(1, start), f.funds().Wallet.Balance}; have != left {
				t.Errorf("the remaining amounts are %v, want %v", have, left)
			}
			available := map[records.Preference]money.Amount{records.SubscriptionOnly: left[0] + left[1], records.WalletOnly: left[2]}[preference]
			if available == 0 {
				available = left[0] + left[1] + left[2]
			}
			_, err := f.spend(available + 1)
			only := map[records.Preference]string{records.SubscriptionOnly: "subscription_only", records.WalletOnly: "wallet_only"}[preference]
			if shortfall, is := errors.AsType[*ledger.Shortfall](err); !is || shortfall.Available != available || shortfall.Only != only {
				t.Errorf("%d were spent: %v", available+1, err)
			}
			f.mustSpend(available)
		})
	}
}

func TestAnUnknownPreferenceIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.SetPreference(t.Context(), f.user, "mine"); codeOf(err) != fault.InvalidParameter {
		t.Errorf("SetPreference returned %v", err)
	}
	if p, err := f.Preference(t.Context(), f.user); err != nil || p != records.SubscriptionFirst {
		t.Errorf("the preference is %q, %v", p, err)
	}
}

func TestACallIsChargedToThePeriodOfItsReservation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(20)
	f.mustBuy(2, "k")
	r, err := f.ledger.Reserve(t.Context(), ledger.Payer{User: f.user}, 5)
	if err != nil {
		t.Fatal(err)
	}
	f.clock.Set(date(2026, 2, 1, 0))
	f.mustSpend(5) // from the new period; the old period is still reserved
	r.Settle(journal.Call{ID: "long", Time: f.clock.Now().UnixMilli(), User: f.user, Key: "key_1", Model: "m", Ended: "complete"}, 3, true)
	f.settled()
	if left := f.quotaLeft(1, date(2026, 1, 31, 12)); left != 2 {
		t.Errorf("the old period has %d, want 2", left)
	}
	if left := f.quotaLeft(1, date(2026, 2, 1, 0)); left != 0 {
		t.Errorf("the new period has %d, want 0", left)
	}
}

func TestACancelledSubscriptionIsNotSpentAndNotRenewed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(20)
	f.mustBuy(1, "k")
	f.mustSpend(2)
	s, err := f.Cancel(t.Context(), "operator", 1, "asked for it")
	if err != nil || s.Status != records.Cancelled || s.QuotaUsed != 2 {
		t.Fatalf("Cancel returned %+v, %v", s, err)
	}
	f.mustSpend(1)
	f.wantWallet(9)
	if _, err := f.renew(1, "r"); codeOf(err) != fault.SubscriptionCancelled {
		t.Errorf("a renewal returned %v", err)
	}
	if _, err := f.Cancel(t.Context(), "operator", 1, ""); codeOf(err) != fault.SubscriptionCancelled {
		t.Errorf("a second Cancel returned %v", err)
	}
	if _, err := f.Cancel(t.Context(), "operator", 2, ""); codeOf(err) != fault.SubscriptionNotFound {
		t.Errorf("Cancel of an unknown subscription returned %v", err)
	}
}

func TestOwnerOfFindsTheOwnerAmongAllUsers(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	defer store.Close()
	owners := map[int64]string{1: "usr_a", 2: "usr_b", 256: "usr_a", 257: "usr_aa", 1 << 40: "usr_b", 9: ""}
	err := store.Update(t.Context(), func(txn storage.Txn) (err error) {
		for id, owner := range owners {
			if owner != "" {
				err = cmp.Or(err, txn.Set(storage.Key(records.Subscriptions.Name, owner, id), nil, time.Time{}))
			}
		}
		for id, want := range owners {
			if got, failed := ownerOf(txn, id); got != want || failed != nil {
				t.Errorf("the owner of subscription %d is %q, want %q: %v", id, got, want, failed)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAnUnchangedPreferenceIsNotRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.countKeys("audit")
	for i, p := range []records.Preference{records.SubscriptionFirst, records.SubscriptionFirst, records.WalletOnly, records.WalletOnly, records.WalletOnly} {
		f.must(f.SetPreference(t.Context(), f.user, p))
		want := before
		if p == records.WalletOnly {
			want++
		}
		if have := f.countKeys("audit"); have != want {
			t.Errorf("after change %d the audit has %d records, want %d", i, have, want)
		}
	}
}

// TestChangesOfPreferencePerDayAreLimited checks the limit for changes of an account.
func TestChangesOfPreferencePerDayAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	orders := []records.Preference{records.WalletOnly, records.WalletFirst}
	for i := range identity.MaxKeys {
		f.must(f.SetPreference(t.Context(), f.user, orders[i%2]))
	}
	if err := f.SetPreference(t.Context(), f.user, records.SubscriptionOnly); codeOf(err) != fault.RateLimited {
		t.Errorf("one more change: %v", err)
	}
	f.must(f.SetPreference(t.Context(), f.user, orders[1])) // it is set already
	if p, err := f.Preference(t.Context(), f.user); err != nil || p != orders[1] {
		t.Errorf("the preference is %s, %v", p, err)
	}
}

func TestSweepOpensPeriodsAndEndsSubscriptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(100)
	f.mustBuy(2, "k")
	f.mustBuy(1, "l")
	f.clock.Set(date(2026, 3, 5, 0))
	for range 2 {
		if err := f.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left := f.quotaLeft(1, date(2026, 3, 1, 0)); left != 5 {
		t.Errorf("without a call, the period has %d, want 5", left)
	}
	f.clock.Set(date(2027, 1, 1, 0))
	if err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.mustSpend(1)
	f.wantWallet(69)
}

func TestTheWalletIsSpentAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(20)
	f.mustBuy(1, "k")
	f.clock.Set(date(2026, 1, 30, 0))
	f.close()
	f.open()
	f.mustSpend(1)
	f.wantWallet(9)
	f.clock.Set(date(2026, 2, 1, 0))
	f.mustSpend(1)
	f.wantWallet(9)
}
