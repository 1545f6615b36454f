package billing

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// TestAChangeOfPreferenceReservesNoMoneyTwice checks that a call whose reservation grows does
// not get the money that a task holds, even if the preference was changed meanwhile.
func TestAChangeOfPreferenceReservesNoMoneyTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(110)
	f.mustBuy(1, "k") // for 10
	f.must(f.SetPreference(t.Context(), f.user, records.WalletOnly))
	payer := ledger.Payer{User: f.user}
	call, err := f.ledger.Reserve(t.Context(), payer, 1)
	f.must(err)
	task, err := f.ledger.Reserve(t.Context(), payer, 60)
	f.must(err)
	f.must(f.SetPreference(t.Context(), f.user, records.WalletFirst))
	id := journal.IDOf("task")
	f.must(f.ledger.Update(t.Context(), f.user, task, func(txn *ledger.Txn) error {
		return task.Hold(txn, f.clock.Now(), f.user, id, "task")
	}))
	if got, _ := call.Grow(100); got > 39+12 { // the rest of the wallet, and the quota
		t.Errorf("the call grew by %d, but only 39 and a quota of 12 were available", got)
	}
	call.Settle(journal.Call{ID: "call", User: f.user, Time: f.clock.Now().UnixMilli(), Key: "k", Model: "m", Ended: "complete", Usage: "reported"}, 100, true)
	f.settled()
	f.must(f.ledger.Update(t.Context(), f.user, nil, func(txn *ledger.Txn) error {
		_, err := journal.EndHold(txn, f.clock.Now(), journal.Usage{User: f.user}, id, 0)
		return err
	}))
}

// TestASubscriptionShowsTheHeldQuota checks the held amount until the tasks end.
func TestASubscriptionShowsTheHeldQuota(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.credit(15)
	f.mustBuy(1, "k") // a quota of 12
	task, err := f.ledger.Reserve(t.Context(), ledger.Payer{User: f.user}, 7)
	f.must(err)
	id := journal.IDOf("task")
	f.must(f.ledger.Update(t.Context(), f.user, task, func(txn *ledger.Txn) error {
		return task.Hold(txn, f.clock.Now(), f.user, id, "task")
	}))
	if s := f.subscription(1); s.QuotaTotal != 12 || s.QuotaUsed != 0 || s.QuotaHeld != 7 {
		t.Errorf("of %d, %d are used and %d held", s.QuotaTotal, s.QuotaUsed, s.QuotaHeld)
	}
	f.must(f.ledger.Update(t.Context(), f.user, nil, func(txn *ledger.Txn) error {
		_, err := journal.EndHold(txn, f.clock.Now(), journal.Usage{User: f.user}, id, 5)
		return err
	}))
	if s := f.subscription(1); s.QuotaUsed != 5 || s.QuotaHeld != 0 {
		t.Errorf("%d are used and %d held", s.QuotaUsed, s.QuotaHeld)
	}
}
