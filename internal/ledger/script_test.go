package ledger

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// TestStepsThatOnceFailed repeats the steps of former failures of TestRandomStepsMatchTheModel.
func TestStepsThatOnceFailed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{
			"a credit with an unknown outcome, then a full disk",
			[]step{
				{do: "reserve", user: "ann", amount: 1},
				{do: "fault", faults: []storagetest.Fault{storagetest.UnknownCommitted, storagetest.LowSpace}},
				{do: "credit", user: "ann", amount: 5},
				{do: "reserve", user: "ann", amount: 5},
			},
		},
		{
			"a purchase with an unknown outcome, then a full disk",
			[]step{
				{do: "credit", user: "ann", amount: 9},
				{do: "reserve", user: "ann", amount: 1},
				{do: "fault", faults: []storagetest.Fault{storagetest.UnknownCommitted, storagetest.LowSpace}},
				{do: "purchase", user: "ann", amount: 7},
				{do: "reserve", user: "ann", amount: 8},
			},
		},
		{
			"a settlement with an unknown outcome, before the balances are read again",
			[]step{
				{do: "credit", user: "bob", amount: 2},
				{do: "reserve", user: "bob", amount: 1},
				{do: "shut"},
				{do: "fault", faults: []storagetest.Fault{storagetest.UnknownCommitted}},
				{do: "final", amount: 1},
				{do: "credit", user: "bob", amount: 1},
				{do: "open"},
				{do: "reserve", user: "bob", amount: 2},
			},
		},
		{
			"a hold that ends while its budget is read for the first time",
			[]step{
				{do: "credit", user: "ann", amount: 30},
				{do: "hold", user: "ann", amount: 9, n: 2},
				{do: "restart"},
				{do: "reserve", user: "ann", amount: 1},
				{do: "shut"},
				{do: "credit", user: "bob", amount: 1},
				{do: "reserve", user: "ann", amount: 5, n: 2},
				{do: "end hold", amount: 3},
				{do: "open"},
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
