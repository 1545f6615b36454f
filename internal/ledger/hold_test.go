package ledger

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestATaskCountsWhereAndWhenItIsCharged holds what of a task is in the usage of
// days, beside calls: what it was charged, once, on the day of that.
func TestATaskCountsWhereAndWhenItIsCharged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 100*money.Unit)
	payer := Payer{User: "ann"}
	hold := func(name string) ID {
		t.Helper()
		r, id := f.reserve(payer, 10*money.Unit), IDOf(name)
		err := f.Update(t.Context(), "ann", r, func(tx *Txn) error { return r.Hold(tx, f.clock.Now(), "ann", id, name) })
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	end := func(id ID, key, model string, cost money.Amount) {
		t.Helper()
		err := f.Update(t.Context(), "ann", nil, func(tx *Txn) error {
			_, err := EndHold(tx, f.clock.Now(), Usage{User: "ann", Key: key, Model: model}, id, cost*money.Unit)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	overnight, voided, dear := hold("a"), hold("b"), hold("c")
	f.reserve(payer, money.Unit).Settle(aCall(f, "call", "ann"), money.Unit, true)
	f.settled()
	f.clock.pass(24 * time.Hour)
	f.reserve(payer, money.Unit).Settle(aCall(f, "next", "ann"), money.Unit, true)
	f.settled()
	end(overnight, "key_1", "m", 4)
	end(overnight, "key_1", "m", 9) // it has ended
	end(voided, "key_1", "video-1", 0)
	end(dear, "key_2", "video-1", 30) // of which 10 are held

	var got []Usage
	var sum money.Amount
	err := f.ScanUsage(t.Context(), "ann", "", "", func(u Usage) bool {
		sum += u.Cost
		got = append(got, Usage{Day: u.Day, User: u.User, Key: u.Key, Model: u.Model, Calls: u.Calls, Tasks: u.Tasks, Cost: u.Cost / money.Unit})
		return true
	})
	want := []Usage{
		{Day: "20261120", User: "ann", Key: "key_1", Model: "m", Calls: 1, Cost: 1},
		{Day: "20261121", User: "ann", Key: "key_1", Model: "m", Calls: 1, Tasks: 1, Cost: 5},
		{Day: "20261121", User: "ann", Key: "key_2", Model: "video-1", Tasks: 1, Cost: 10},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, the usage is %+v, not %+v", err, got, want)
	}
	err = f.store.View(t.Context(), func(r storage.Reader) error {
		for _, day := range []Account{"s/spent/20261120", "s/spent/20261121"} {
			state, err := ReadState(r, day)
			if err != nil {
				return err
			}
			sum -= state.Balance
		}
		return nil
	})
	if err != nil || sum != 0 {
		t.Errorf("%v, the usage differs by %v from what was spent", err, sum)
	}
	f.verified()
}

// TestAHoldEndsOnce also if it has no record any more though it has ended.
func TestAHoldEndsOnce(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	end := func(id ID, cost money.Amount) (charged money.Amount, err error) {
		err = f.Update(t.Context(), "ann", nil, func(tx *Txn) (err error) {
			charged, err = EndHold(tx, f.clock.Now(), Usage{User: "ann", Key: "key_1", Model: "m"}, id, cost)
			return err
		})
		return charged, err
	}
	for range 2 {
		if charged, err := end(openHold, 4*money.Unit); err != nil || charged != 4*money.Unit {
			t.Errorf("it was charged %v: %v", charged, err)
		}
	}
	f.verified()
	f.change(func(tx storage.Txn) error { return tx.Delete(holdKey("ann", paidHold)) })
	if charged, err := end(paidHold, 7*money.Unit); err == nil {
		t.Errorf("a hold that had ended, in what way is not known, was charged %v", charged)
	}
}

// TestOpenHoldsAreTheTransfersThatNothingEnds lists holds, of which an open one has
// no record, and reads each.
func TestOpenHoldsAreTheTransfersThatNothingEnds(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		var open []HoldInfo
		err := ScanOpenHolds(r, func(h HoldInfo, reference string) error {
			if reference != "task" {
				t.Errorf("hold %v is about %q", h.ID, reference)
			}
			open = append(open, h)
			return nil
		})
		if want := []HoldInfo{{ID: openHold, User: "ann", State: Held, Amount: 10 * money.Unit}}; err != nil || !slices.Equal(open, want) {
			t.Errorf("%v, %+v are open, not %+v", err, open, want)
		}
		for _, want := range []HoldInfo{
			{openHold, "ann", Held, 10 * money.Unit, 0},
			{paidHold, "ann", Settled, 7 * money.Unit, 6 * money.Unit},
			{voidHold, "ann", Voided, 2 * money.Unit, 0},
		} {
			if have, found, err := ReadHold(r, "ann", want.ID); err != nil || !found || have != want {
				t.Errorf("%v, %t, the hold is %+v, not %+v", err, found, have, want)
			}
			if _, found, err := ReadHold(r, "bob", want.ID); err != nil || found {
				t.Errorf("hold %v is bob's: %t, %v", want.ID, found, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
