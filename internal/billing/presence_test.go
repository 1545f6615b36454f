package billing

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// presences returns what the index says of the running subscriptions of ann, by
// their ids.
func (f *desk) presences() map[int64]presence {
	f.t.Helper()
	said := make(map[int64]presence)
	f.must(f.store.View(f.t.Context(), func(r storage.Reader) error {
		all, err := runningAfter(r, f.user, f.clock.Now())
		for _, s := range all {
			said[s.id] = s.presence
		}
		return err
	}))
	return said
}

// at returns the presence of a period that starts at a time, and is as it is
// between two others.
func at(start, from, until time.Time) presence {
	return presence{from: from.Unix(), until: until.Unix(), start: start.Unix()}
}

func TestTheIndexSaysWhichPeriodASubscriptionIsIn(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
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

func TestAnIndexThatSaysNothingIsFilledByWhoeverLooks(t *testing.T) {
	t.Parallel()
	for name, value := range map[string][]byte{"nothing": nil, "what cannot be read": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDesk(t)
			f.credit(20)
			f.mustBuy(2, "k")
			want := f.presences()[1]
			f.must(f.store.Update(t.Context(), func(txn storage.Txn) error {
				return txn.Set(storage.Key(livePrefix, f.user, date(2026, 4, 30, 12).Unix(), int64(1)), value, never)
			}))
			f.close()
			f.open()
			f.mustSpend(1)
			if left := f.quotaLeft(1, date(2026, 1, 31, 12)); left != 4 {
				t.Errorf("%d of the quota are left, want 4", left)
			}
			if said := f.presences()[1]; said != want {
				t.Errorf("then it says %+v, want %+v", said, want)
			}
		})
	}
}
