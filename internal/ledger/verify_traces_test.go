package ledger

import (
	"fmt"
	"testing"
)

func TestWhatHasLeftATraceIsFoundAndLittleElse(t *testing.T) {
	t.Parallel()
	traces := newTraces()
	if traces.found(wallet, extra) {
		t.Error("something is found where nothing was left")
	}
	ids := make([]ID, 300_000)
	for i := range ids {
		ids[i] = IDOf(fmt.Sprint(i))
	}
	for round := range 6 {
		traces.fade()
		mine, others := Wallet(fmt.Sprint("ann", round)), Wallet(fmt.Sprint("bob", round))
		wrong := 0
		for _, id := range ids {
			traces.leave(mine, id)
		}
		for _, id := range ids {
			if !traces.found(mine, id) {
				t.Fatalf("%v has left no trace", id)
			}
			if traces.found(others, id) {
				wrong++
			}
		}
		if wrong > len(ids)/20 {
			t.Errorf("in round %d, %d of %d are found that were never left", round, wrong, len(ids))
		}
	}
}
