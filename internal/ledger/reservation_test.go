package ledger

import (
	"testing"
)

func TestAnEndedReservationNeitherGrowsNorReleases(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 10)
	released := f.reserve(Payer{User: "ann"}, 4)
	released.Release()
	released.Release()
	settled := f.reserve(Payer{User: "ann"}, 4)
	settled.Settle(aCall(f, "a", "ann"), 1, true)
	settled.Release()
	free := f.reserve(Payer{User: "ann"}, 0)
	for name, r := range map[string]*Reservation{"released": released, "settled": settled, "free": free} {
		if got, _ := r.Grow(3); got != 0 {
			t.Errorf("the %s reservation grew by %d", name, got)
		}
	}
	var none *Reservation
	none.Release()
	f.checkNothingLeft()
	if w := f.wallet("ann"); w.Balance != 9 {
		t.Errorf("the wallet has %d", w.Balance)
	}
	defer func() {
		if recover() == nil {
			t.Error("a call was settled after its end")
		}
	}()
	settled.Settle(aCall(f, "a", "ann"), 1, true)
}

func TestAFreeCallIsRecordedAndChargesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	r := f.reserve(Payer{User: "ann"}, 0) // ann has no money
	if charged := r.Settle(aCall(f, "a", "ann"), 3, true); charged != 0 {
		t.Errorf("charged %d, but nothing was reserved", charged)
	}
	f.checkNothingLeft()
	if report := f.checkVerified(); report.Calls != 1 || report.Accounts != 0 {
		t.Errorf("the report is %+v", report)
	}
}
