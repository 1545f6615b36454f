package ledger

import (
	"testing"
)

func TestAnEndedReservationGivesAndTakesNothing(t *testing.T) {
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
			t.Errorf("one that is %s grew by %d", name, got)
		}
	}
	var none *Reservation
	none.Release()
	f.nothingLeft()
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

func TestACallForNothingIsRecordedAndCostsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	r := f.reserve(Payer{User: "ann"}, 0) // who has nothing
	if charged := r.Settle(aCall(f, "a", "ann"), 3, true); charged != 0 {
		t.Errorf("charged %d of nothing reserved", charged)
	}
	f.nothingLeft()
	if report := f.verified(); report.Calls != 1 || report.Accounts != 0 {
		t.Errorf("there are %+v", report)
	}
}
