package billing

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// presences returns the presences in the summary of ann, by the id of the subscription.
func (f *fixture) presences() map[int64]records.Presence {
	f.t.Helper()
	presences := make(map[int64]records.Presence)
	f.must(f.store.View(f.t.Context(), func(r storage.Reader) error {
		have, err := records.ReadSummary(r, f.user, f.clock.Now())
		if err != nil {
			return err
		}
		for _, x := range have.Running {
			presences[x.ID] = x.Presence
		}
		return nil
	}))
	return presences
}

// at returns the presence of a period that starts at start and is valid in [from, until).
func at(start, from, until time.Time) records.Presence {
	return records.Presence{From: from.Unix(), Until: until.Unix(), Start: start.Unix()}
}

func TestTheSummaryHasThePeriodOfEachSubscription(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(1000)
	bought := f.clock.Now()
	f.mustBuy(2, "monthly") // 1: three months, each with a quota
	f.mustBuy(1, "once")    // 2: one month with one quota
	for _, step := range []struct {
		now    time.Time
		do     func()
		want   map[int64]records.Presence
		before string
	}{
		{bought, func() {}, map[int64]records.Presence{
			1: at(bought, bought, date(2026, 2, 1, 0)),
			2: at(bought, bought, date(2026, 2, 28, 12)),
		}, "the first read"},
		{bought, func() { f.mustRenew(1, "r1"); f.mustRenew(2, "r2") }, map[int64]records.Presence{
			1: at(bought, bought, date(2026, 2, 1, 0)),
			2: at(bought, bought, date(2026, 2, 28, 12)),
		}, "the renewals begin"},
		{date(2026, 2, 1, 0), func() { f.mustSpend(1) }, map[int64]records.Presence{
			1: at(date(2026, 2, 1, 0), date(2026, 2, 1, 0), date(2026, 3, 1, 0)),
			2: at(bought, bought, date(2026, 2, 28, 12)),
		}, "the second month ends"},
		{date(2026, 2, 28, 12), func() { f.mustSpend(1) }, map[int64]records.Presence{
			1: at(date(2026, 2, 1, 0), date(2026, 2, 1, 0), date(2026, 3, 1, 0)),
			2: at(bought, date(2026, 2, 28, 12), date(2026, 3, 28, 12)), // one run, one quota
		}, "the renewed month ends"},
		{date(2026, 4, 30, 12), func() { f.mustSpend(1) }, map[int64]records.Presence{
			1: at(date(2026, 4, 1, 0), date(2026, 4, 30, 12), date(2026, 5, 1, 0)), // by the renewal
		}, "the month ends in which the renewal began"},
		{date(2026, 4, 29, 0), func() { f.mustSpend(1) }, map[int64]records.Presence{
			1: at(date(2026, 4, 1, 0), date(2026, 4, 1, 0), date(2026, 4, 30, 12)),
		}, "the clock reaches the earlier time again"},
	} {
		f.clock.Set(step.now)
		step.do()
		presences := f.presences()
		if len(presences) != len(step.want) {
			t.Errorf("before %s: %d subscriptions are running, want %d", step.before, len(presences), len(step.want))
		}
		for id, want := range step.want {
			if presences[id] != want {
				t.Errorf("before %s: the period of subscription %d is %+v, want %+v", step.before, id, presences[id], want)
			}
		}
		f.checkStore()
	}
}

// changeSummary changes the summary of ann.
func (f *fixture) changeSummary(change func(*records.Summary)) func(storage.Txn) error {
	return func(t storage.Txn) error {
		r, err := records.ReadSummary(t, f.user, f.clock.Now())
		if err != nil {
			return err
		}
		before := &records.Summary{User: r.User, Due: r.Due}
		change(r)
		return records.Summaries.Put(t, before, r)
	}
}

func TestASummaryWithoutPeriodsIsFilledOnRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(20)
	f.mustBuy(2, "k")
	want := f.presences()[1]
	f.must(f.store.Update(t.Context(), f.changeSummary(func(r *records.Summary) { r.Running[0].Presence = records.Presence{} })))
	f.close()
	f.open()
	f.mustSpend(1)
	if left := f.quotaLeft(1, date(2026, 1, 31, 12)); left != 4 {
		t.Errorf("%d of the quota are left, want 4", left)
	}
	if p := f.presences()[1]; p != want {
		t.Errorf("the period is %+v, want %+v", p, want)
	}
}

func TestAPurchaseFailsIfTheSummaryCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(20)
	f.mustBuy(2, "k")
	f.must(f.store.Update(t.Context(), set(storage.Key(records.Summaries.Name, f.user), []byte{storage.RecordVersion, '{'})))
	f.damaged = true
	if _, err := f.buy(2, "l"); err == nil {
		t.Error("a purchase succeeded without the summary")
	}
}

// TestAClockThatWasAheadEndsNoSubscription sets the clock ahead, so that the summary drops
// running subscriptions, and then back.
func TestAClockThatWasAheadEndsNoSubscription(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(1000)
	now := f.clock.Now()
	f.mustBuy(1, "a")
	f.mustBuy(2, "b")
	before := f.sources()
	f.clock.Set(date(2030, 1, 1, 0))
	f.mustSpend(1)
	if f.presences()[1] != (records.Presence{}) || len(f.sources()) != 0 {
		t.Fatal("a subscription is still running after four years")
	}
	f.clock.Set(now)
	f.close()
	f.open()
	if after := f.sources(); !slices.Equal(after, before) {
		t.Errorf("the sources are %q, want %q", after, before)
	}
	if _, err := f.buy(2, "c"); codeOf(err) == fault.PurchaseLimitReached {
		t.Error(err)
	}
	f.checkStore()
}
