package ledger

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestATaskCountsOnTheDayOfItsCharge checks that the usage of a day counts a task once, with its
// charge, on the day of the charge.
func TestATaskCountsOnTheDayOfItsCharge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 100*money.Unit)
	payer := Payer{User: "ann"}
	hold := func(name string) journal.ID {
		t.Helper()
		r, id := f.reserve(payer, 10*money.Unit), journal.IDOf(name)
		err := f.Update(t.Context(), "ann", r, func(tx *Txn) error { return r.Hold(tx, f.clock.Now(), "ann", id, name) })
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	end := func(id journal.ID, key, model string, cost money.Amount) {
		t.Helper()
		err := f.Update(t.Context(), "ann", nil, func(tx *Txn) error {
			_, err := journal.EndHold(tx, f.clock.Now(), journal.Usage{User: "ann", Key: key, Model: model}, id, cost*money.Unit)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	overnight, voided, expensive := hold("a"), hold("b"), hold("c")
	f.reserve(payer, money.Unit).Settle(aCall(f, "call", "ann"), money.Unit, true)
	f.settled()
	f.clock.Advance(24 * time.Hour)
	f.reserve(payer, money.Unit).Settle(aCall(f, "next", "ann"), money.Unit, true)
	f.settled()
	end(overnight, "key_1", "m", 4)
	end(overnight, "key_1", "m", 9) // the hold has ended before
	end(voided, "key_1", "video-1", 0)
	end(expensive, "key_2", "video-1", 30) // 10 are held

	var got []journal.Usage
	var sum money.Amount
	err := f.ScanUsage(t.Context(), "ann", "", "", func(u journal.Usage) bool {
		sum += u.Cost
		got = append(got, journal.Usage{Day: u.Day, User: u.User, Key: u.Key, Model: u.Model, Calls: u.Calls, Tasks: u.Tasks, Cost: u.Cost / money.Unit})
		return true
	})
	want := []journal.Usage{
		{Day: "20261120", User: "ann", Key: "key_1", Model: "m", Calls: 1, Cost: 1},
		{Day: "20261121", User: "ann", Key: "key_1", Model: "m", Calls: 1, Tasks: 1, Cost: 5},
		{Day: "20261121", User: "ann", Key: "key_2", Model: "video-1", Tasks: 1, Cost: 10},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the usage is %+v, want %+v (%v)", got, want, err)
	}
	err = f.store.View(t.Context(), func(r storage.Reader) error {
		for _, day := range []journal.Account{"s/spent/20261120", "s/spent/20261121"} {
			state, err := journal.ReadState(r, day)
			if err != nil {
				return err
			}
			sum -= state.Balance
		}
		return nil
	})
	if err != nil || sum != 0 {
		t.Errorf("the usage differs by %v from the spent amounts (%v)", sum, err)
	}
	f.checkVerified()
}

var (
	openHold = journal.IDOf("open")
	paidHold = journal.IDOf("paid")
	voidHold = journal.IDOf("void")
)

// newHolds returns a ledger with an open, a captured and a voided hold.
func newHolds(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, Options{})
	f.credit("ann", 100*money.Unit)
	for id, amount := range map[journal.ID]money.Amount{openHold: 10, paidHold: 7, voidHold: 2} {
		r := f.reserve(Payer{User: "ann", Budgets: Budgets{KeyBudget("1", 100*money.Unit, calendar.Month)}}, amount*money.Unit)
		if err := f.Update(t.Context(), "ann", r, func(tx *Txn) error { return r.Hold(tx, f.clock.Now(), "ann", id, "task") }); err != nil {
			t.Fatal(err)
		}
	}
	f.change(func(tx storage.Txn) error {
		u := journal.Usage{User: "ann", Key: "key_1", Model: "m"}
		_, err := journal.EndHold(tx, f.clock.Now(), u, paidHold, 6*money.Unit)
		if err == nil {
			_, err = journal.EndHold(tx, f.clock.Now(), u, voidHold, 0)
		}
		return err
	})
	return f
}

// TestAHoldEndsOnce ends holds twice. One of them has ended, but its record is missing.
func TestAHoldEndsOnce(t *testing.T) {
	t.Parallel()
	f := newHolds(t)
	end := func(id journal.ID, cost money.Amount) (charged money.Amount, err error) {
		err = f.Update(t.Context(), "ann", nil, func(tx *Txn) (err error) {
			charged, err = journal.EndHold(tx, f.clock.Now(), journal.Usage{User: "ann", Key: "key_1", Model: "m"}, id, cost)
			return err
		})
		return charged, err
	}
	for range 2 {
		if charged, err := end(openHold, 4*money.Unit); err != nil || charged != 4*money.Unit {
			t.Errorf("the hold was charged %v: %v", charged, err)
		}
	}
	f.checkVerified()
	f.change(func(tx storage.Txn) error { return tx.Delete(journal.HoldKey("ann", paidHold)) })
	if charged, err := end(paidHold, 7*money.Unit); err == nil {
		t.Errorf("a hold that had ended without a record was charged %v", charged)
	}
}

// TestScanOpenHoldsListsOnlyOpenHolds lists the open holds, which have no record, and reads each
// hold.
func TestScanOpenHoldsListsOnlyOpenHolds(t *testing.T) {
	t.Parallel()
	f := newHolds(t)
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		var open []journal.HoldInfo
		err := journal.ScanOpenHolds(r, func(h journal.HoldInfo, reference string) error {
			if reference != "task" {
				t.Errorf("hold %v is about %q", h.ID, reference)
			}
			open = append(open, h)
			return nil
		})
		if want := []journal.HoldInfo{{ID: openHold, User: "ann", State: journal.Held, Amount: 10 * money.Unit}}; err != nil || !slices.Equal(open, want) {
			t.Errorf("the open holds are %+v, want %+v (%v)", open, want, err)
		}
		for _, want := range []journal.HoldInfo{
			{ID: openHold, User: "ann", State: journal.Held, Amount: 10 * money.Unit, Charged: 0},
			{ID: paidHold, User: "ann", State: journal.Settled, Amount: 7 * money.Unit, Charged: 6 * money.Unit},
			{ID: voidHold, User: "ann", State: journal.Voided, Amount: 2 * money.Unit, Charged: 0},
		} {
			if have, found, err := journal.ReadHold(r, "ann", want.ID); err != nil || !found || have != want {
				t.Errorf("the hold is %+v (found: %t), want %+v (%v)", have, found, want, err)
			}
			if _, found, err := journal.ReadHold(r, "bob", want.ID); err != nil || found {
				t.Errorf("bob can read hold %v: %t, %v", want.ID, found, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
