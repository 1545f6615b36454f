package ledger

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestAnUnwritableSettlementDoesNotBlockOthers damages a usage record, so that a settlement cannot
// be added to it.
func TestAnUnwritableSettlementDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	users := []string{"ann", "cat", "bob"} // bob, who has the damaged record, is last
	for _, user := range users {
		f.credit(user, 10)
	}
	damaged := aCall(f, "a", "bob")
	row := journal.Usage{Day: damaged.Day(), User: damaged.User, Key: damaged.Key, Model: damaged.Model}
	err := f.store.Update(t.Context(), func(t storage.Txn) error { return t.Set(row.StoreKey(), []byte("?"), time.Time{}) })
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range users {
		r, err := f.Reserve(t.Context(), Payer{User: user, Budgets: Budgets{UserBudget(9, "day")}}, 8)
		if err != nil {
			t.Fatal(err)
		}
		r.Settle(aCall(f, "call of "+user, user), 5, true)
	}
	f.settled()
	for user, left := range map[string]int64{"ann": 5, "bob": 10, "cat": 5} {
		if w := f.wallet(user); int64(w.Balance) != left {
			t.Errorf("the wallet of %s has %d, want %d", user, w.Balance, left)
		}
	}
	if s := f.Stats(); s.Open != 0 || s.Reserved != 0 || s.AtRisk != 0 || s.Queued != 0 || s.Mismatches != 1 {
		t.Errorf("left over: %+v", s)
	}
	// No settlement waits, so new calls are admitted.
	r, err := f.Reserve(t.Context(), Payer{User: "bob", Budgets: Budgets{UserBudget(9, "day")}}, 9)
	if err != nil {
		t.Fatalf("afterwards, Reserve returned %v", err)
	}
	r.Release()
}
