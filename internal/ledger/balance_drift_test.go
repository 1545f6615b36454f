package ledger

import (
	"testing"
	"testing/synctest"

	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// TestBalancesNeverExceedTheStore runs changes while the balances are not loaded, and commits with
// an unknown outcome.
func TestBalancesNeverExceedTheStore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{
			"a call grows while the balances are out of date and miss a hold",
			[]step{
				{do: "credit", user: "ann", amount: 30}, // the wallet has 90
				{do: "order", user: "ann", n: 3},        // opens the quota of the day
				{do: "order", user: "ann", n: 0},        // only the wallet
				{do: "reserve", user: "ann", amount: 1},
				{do: "shut"},
				{do: "order", user: "ann", n: 3},      // lists an account that is not cached
				{do: "hold", user: "ann", amount: 49}, // holds 50
				{do: "open"},
				{do: "grow", amount: 60}, // 39 are left, and 7 of the quota
				{do: "final", amount: 61},
			},
		},
		{
			"a hold with an unknown outcome on a quota that is temporarily no source",
			[]step{
				{do: "grant", user: "ann", amount: 20, n: 1}, // a quota of 40
				{do: "credit", user: "ann", amount: 30},
				{do: "order", user: "ann", n: 2},
				{do: "reserve", user: "ann", amount: 1},
				{do: "shut"},
				{do: "order", user: "ann", n: 0},
				{do: "hold", user: "ann", amount: 19},
				{do: "fault", faults: []storagetest.Fault{storagetest.None, storagetest.UnknownCommitted}},
				{do: "open"},
				{do: "order", user: "ann", n: 2},
				{do: "reserve", user: "ann", amount: 39},
				{do: "final", n: 1, amount: 39},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if err := runSteps(t, test.steps); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestACallGrowsAfterTheOrderHasChanged checks that an open call can reserve more although the
// balances must be read again.
func TestACallGrowsAfterTheOrderHasChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		defer m.stop()
		for _, s := range []step{
			{do: "credit", user: "ann", amount: 30},
			{do: "order", user: "ann", n: 1}, // the quota of the day, then the wallet
			{do: "order", user: "ann", n: 0}, // only the wallet
			{do: "reserve", user: "ann", amount: 1},
			{do: "order", user: "ann", n: 1},
		} {
			stepKinds[s.do].do(m, s)
		}
		if got, _ := m.calls[0].reservation.Grow(10); got != 10 {
			t.Errorf("Grow(10) reserved %d", got)
		}
		m.finish()
	})
}

// TestACallDoesNotGrowIntoAHoldOfUnknownOutcome commits a hold with an unknown outcome before the
// disk is full. The money of the hold must not be available.
func TestACallDoesNotGrowIntoAHoldOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	err := runSteps(t, []step{
		{do: "credit", user: "ann", amount: 30},
		{do: "reserve", user: "ann", amount: 1},
		{do: "fault", faults: []storagetest.Fault{storagetest.UnknownCommitted, storagetest.LowSpace}},
		{do: "hold", user: "ann", amount: 49},
		{do: "grow", amount: 60},
		{do: "final", amount: 61},
	})
	if err != nil {
		t.Error(err)
	}
}
