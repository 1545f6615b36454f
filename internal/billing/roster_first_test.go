package billing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// becomeOlder makes of the store what it would be without rosters: the sales and
// periods of all subscriptions have records of their own, and what the roster says
// stands in indexes.
func (f *desk) becomeOlder() {
	f.t.Helper()
	f.must(f.store.Update(f.t.Context(), func(t storage.Txn) error {
		have, err := readRoster(t, f.user, f.clock.Now())
		if err != nil {
			return err
		}
		var all []subscriptionRecord
		lo, hi := storage.Below(subscriptionPrefix, f.user)
		if err := scan(t, lo, hi, func(_ []byte, s subscriptionRecord) bool { all = append(all, s); return true }); err != nil {
			return err
		}
		steps := []func(storage.Txn) error{remove(storage.Key(rosterPrefix, f.user))}
		for _, s := range all {
			steps = append(steps, plant(storage.Key(ownerPrefix, s.ID), f.user))
			if s.First != nil {
				steps = append(steps, s.unfold, func(t storage.Txn) error { return storage.SetRecord(t, s.key(), s) })
			}
			if s.Cancelled == 0 {
				steps = append(steps, plant(storage.Key(livePrefix, f.user, s.End, s.ID), nil))
			}
		}
		for _, c := range have.bought {
			steps = append(steps, plant(storage.Key(purchasesPrefix, f.user, c.plan), c.times))
		}
		account, err := readAccount(t, f.user)
		account.Due = have.due
		for _, step := range append(steps, func(t storage.Txn) error { return account.write(t, f.user) }) {
			if err == nil {
				err = step(t)
			}
		}
		return err
	}))
}

// TestAStoreWithoutRostersIsTakenOver does one thing after another to a store of
// an earlier build, and the same to one of this build.
func TestAStoreWithoutRostersIsTakenOver(t *testing.T) {
	t.Parallel()
	steps := map[string]func(f *desk) string{
		"a call": func(f *desk) string { f.mustSpend(3); return "" },
		"a purchase": func(f *desk) string {
			_, err := f.buy(1, "more")
			return string(codeOf(err))
		},
		"a purchase beyond the limit": func(f *desk) string {
			_, err := f.buy(5, "more")
			return string(codeOf(err))
		},
		"a renewal of one that was renewed": func(f *desk) string { return fmt.Sprint(f.mustRenew(1, "more").EndTime) },
		"a renewal of one that was not":     func(f *desk) string { return fmt.Sprint(f.mustRenew(2, "more").EndTime) },
		"a cancellation": func(f *desk) string {
			_, err := f.Cancel(f.t.Context(), "operator", 2, "asked for it")
			return string(codeOf(err))
		},
		"a change of the preference": func(f *desk) string {
			return string(codeOf(f.SetPreference(f.t.Context(), f.user, WalletFirst)))
		},
		"the sweeper, later": func(f *desk) string {
			f.clock.set(date(2026, 3, 1, 0))
			return fmt.Sprint(f.Sweep(f.t.Context()))
		},
		"the sweeper, much later": func(f *desk) string {
			f.clock.set(date(2027, 3, 1, 0))
			return fmt.Sprint(f.Sweep(f.t.Context()))
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var outcomes []string
			for _, older := range []bool{false, true} {
				f, _, _ := rich(t)
				f.mustBuy(5, "first")
				f.mustBuy(5, "second")
				if older {
					f.becomeOlder()
					f.close()
					f.open()
					if problems := f.problems(); len(problems) != 0 {
						t.Fatalf("before anybody looks: %q", problems)
					}
				}
				outcome := step(f)
				f.mustSpend(1) // so that somebody has looked
				if problems := f.problems(); len(problems) != 0 {
					t.Errorf("older %t: %q", older, problems)
				}
				if left := f.keys(livePrefix) + f.keys(purchasesPrefix) + f.keys(ownerPrefix); left != 0 {
					t.Errorf("older %t: %d keys are left of what came before rosters", older, left)
				}
				outcomes = append(outcomes, outcome+" "+f.standing())
			}
			if outcomes[0] != outcomes[1] {
				t.Errorf("it came to\n%s\nand with a store of an earlier build to\n%s", outcomes[0], outcomes[1])
			}
		})
	}
}

// standing is what ann has.
func (f *desk) standing() string {
	f.t.Helper()
	all, err := f.Subscriptions(f.t.Context(), f.user)
	f.must(err)
	var have *roster
	f.must(f.store.View(f.t.Context(), func(r storage.Reader) (err error) {
		have, err = readRoster(r, f.user, f.clock.Now())
		return err
	}))
	have.stored = nil
	return strings.ReplaceAll(fmt.Sprintf("%+v %+v %+v", f.funds(), all, *have), f.user, "ann")
}

// TestAClockThatWasAheadTakesNothingFromAnybody has a clock strike off what is
// not over, and then come back.
func TestAClockThatWasAheadTakesNothingFromAnybody(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
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

// TestTheFirstThingDoneToAnOlderStoreMayBeACancellation of the only subscription
// that there is, so that nothing is left for a roster to say.
func TestTheFirstThingDoneToAnOlderStoreMayBeACancellation(t *testing.T) {
	t.Parallel()
	f := newDesk(t)
	f.credit(100)
	if _, err := f.GrantPlan(t.Context(), "operator", f.plans, "USD", "ann", 2, "gift", ""); err != nil {
		t.Fatal(err)
	}
	f.becomeOlder()
	f.close()
	f.open()
	if _, err := f.Cancel(t.Context(), "operator", 1, "asked for it"); err != nil {
		t.Fatal(err)
	}
	if problems := f.problems(); len(problems) != 0 {
		t.Errorf("%q", problems)
	}
	f.mustBuy(2, "k")
	if n := f.keys(duePrefix); n != 1 {
		t.Errorf("the sweeper has %d keys of her, want 1", n)
	}
}
