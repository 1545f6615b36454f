package billing

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// presences returns what the summary of ann says of her running subscriptions, by
// their ids.
func (f *fixture) presences() map[int64]presence {
	f.t.Helper()
	said := make(map[int64]presence)
	f.must(f.store.View(f.t.Context(), func(r storage.Reader) error {
		have, err := readSummary(r, f.user, f.clock.Now())
		if err != nil {
			return err
		}
		for _, x := range have.Running {
			said[x.ID] = x.presence
		}
		return nil
	}))
	return said
}

// at returns the presence of a period that starts at a time, and is as it is
// between two others.
func at(start, from, until time.Time) presence {
	return presence{From: from.Unix(), Until: until.Unix(), Start: start.Unix()}
}

func TestTheSummarySaysWhichPeriodASubscriptionIsIn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(1000)
	bought := f.clock.Now()
	f.mustBuy(2, "monthly") // 1: three months, each with a quota
	f.mustBuy(1, "once")    // 2: one month with one quota
	for _, step := range []struct {
		now    time.Time
		do     func()
		want   map[int64]presence
		before string
	}{
		{bought, func() {}, map[int64]presence{
			1: at(bought, bought, date(2026, 2, 1, 0)),
			2: at(bought, bought, date(2026, 2, 28, 12)),
		}, "anybody looks"},
		{bought, func() { f.mustRenew(1, "r1"); f.mustRenew(2, "r2") }, map[int64]presence{
			1: at(bought, bought, date(2026, 2, 1, 0)),
			2: at(bought, bought, date(2026, 2, 28, 12)),
		}, "what was renewed begins"},
		{date(2026, 2, 1, 0), func() { f.mustSpend(1) }, map[int64]presence{
			1: at(date(2026, 2, 1, 0), date(2026, 2, 1, 0), date(2026, 3, 1, 0)),
			2: at(bought, bought, date(2026, 2, 28, 12)),
		}, "the second month ends"},
		{date(2026, 2, 28, 12), func() { f.mustSpend(1) }, map[int64]presence{
			1: at(date(2026, 2, 1, 0), date(2026, 2, 1, 0), date(2026, 3, 1, 0)),
			2: at(bought, date(2026, 2, 28, 12), date(2026, 3, 28, 12)), // one run, one quota
		}, "the renewed month ends"},
		{date(2026, 4, 30, 12), func() { f.mustSpend(1) }, map[int64]presence{
			1: at(date(2026, 4, 1, 0), date(2026, 4, 30, 12), date(2026, 5, 1, 0)), // by the renewal
		}, "the month ends in which the renewal began"},
		{date(2026, 4, 29, 0), func() { f.mustSpend(1) }, map[int64]presence{
			1: at(date(2026, 4, 1, 0), date(2026, 4, 1, 0), date(2026, 4, 30, 12)),
		}, "the time comes again to which the clock was set back"},
	} {
		f.clock.set(step.now)
		step.do()
		said := f.presences()
		if len(said) != len(step.want) {
			t.Errorf("before %s: %d subscriptions are running, want %d", step.before, len(said), len(step.want))
		}
		for id, want := range step.want {
			if said[id] != want {
				t.Errorf("before %s: of subscription %d it says %+v, want %+v", step.before, id, said[id], want)
			}
		}
		f.sound()
	}
}

// changeSummary changes the summary of ann.
func (f *fixture) changeSummary(change func(*summary)) func(storage.Txn) error {
	return func(t storage.Txn) error {
		r, err := readSummary(t, f.user, f.clock.Now())
		if err != nil {
			return err
		}
		change(r)
		return r.write(t)
	}
}

func TestASummaryWithoutPeriodsIsFilledWhenItIsRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(20)
	f.mustBuy(2, "k")
	want := f.presences()[1]
	f.must(f.store.Update(t.Context(), f.changeSummary(func(r *summary) { r.Running[0].presence = presence{} })))
	f.close()
	f.open()
	f.mustSpend(1)
	if left := f.quotaLeft(1, date(2026, 1, 31, 12)); left != 4 {
		t.Errorf("%d of the quota are left, want 4", left)
	}
	if said := f.presences()[1]; said != want {
		t.Errorf("then it says %+v, want %+v", said, want)
	}
}

func TestAPurchaseFailsWhereTheSummaryCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(20)
	f.mustBuy(2, "k")
	f.must(f.store.Update(t.Context(), set(storage.Key(summaries.Name, f.user), []byte{storage.RecordVersion, '{'})))
	f.damaged = true
	if _, err := f.buy(2, "l"); err == nil {
		t.Error("a purchase went on without it")
	}
}

func TestASummaryThatIsCutIsNotRead(t *testing.T) {
	t.Parallel()
	whole := &summary{Due: 5, Purchases: map[int64]int64{1: 2}, Running: []running{{1, 5, presence{1, 2, 1}}}}
	stored := whole.encode()
	for n := range stored {
		if s, err := decodeSummary(stored[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes it was read as %+v", n, len(stored), s)
		}
	}
}

func TestASummaryIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rapid.Check(t, func(t *rapid.T) {
		s := summary{User: "usr_x", Due: rapid.Int64().Draw(t, "due"), Ended: -1}
		for _, plan := range rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 20).Draw(t, "plans") {
			s.countPurchase(plan)
		}
		for i, end := range rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 20).Draw(t, "ends") {
			s.add(running{ID: int64(i), End: end, presence: presence{rapid.Int64().Draw(t, "from"), end, end}})
		}
		var have *summary
		err := f.store.Update(context.Background(), func(txn storage.Txn) (err error) {
			if err = summaries.Put(txn, nil, &s); err != nil {
				return err
			}
			if have, err = readSummary(txn, "usr_x", time.Unix(0, 0)); err != nil {
				return err
			}
			return summaries.Put(txn, have, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		have.stored = nil
		if !reflect.DeepEqual(*have, s) {
			t.Fatalf("it was %+v and is read as %+v", s, have)
		}
		if !slices.IsSortedFunc(s.Running, running.compare) {
			t.Fatalf("it is out of order: %+v", s.Running)
		}
	})
}

// TestAClockThatWasAheadTakesNothingFromAnybody has a clock strike off what is
// not over, and then come back.
func TestAClockThatWasAheadTakesNothingFromAnybody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(1000)
	now := f.clock.Now()
	f.mustBuy(1, "a")
	f.mustBuy(2, "b")
	before := f.sources()
	f.clock.set(date(2030, 1, 1, 0))
	f.mustSpend(1)
	if f.presences()[1] != (presence{}) || len(f.sources()) != 0 {
		t.Fatal("in four years it is still running")
	}
	f.clock.set(now)
	f.close()
	f.open()
	if after := f.sources(); !slices.Equal(after, before) {
		t.Errorf("what may be spent is %q, and was %q", after, before)
	}
	if _, err := f.buy(2, "c"); codeOf(err) == fault.PurchaseLimitReached {
		t.Error(err)
	}
	f.sound()
}
