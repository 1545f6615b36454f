package verify

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// The history for the tests of Verify has records of every kind, with whole units of money. Each
// settlement is its own batch, one minute after the previous one.
var (
	creditID   = journal.IDOf("credit")
	refundID   = journal.IDOf("refund")
	purchaseID = journal.IDOf("purchase")
	openHold   = journal.IDOf("open")
	paidHold   = journal.IDOf("paid")
	voidHold   = journal.IDOf("void")
	history    = ledger.Payer{User: "ann", Budgets: ledger.Budgets{{Scope: "key/1", Limit: 100 * money.Unit, Reset: calendar.Month}}}
	underKey   = journal.BudgetAccount("ann", "key/1", calendar.Month.Start(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)).Unix())
)

func newHistory(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	ctx := t.Context()
	f.book("ann", nil, journal.Transfer{ID: creditID, Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("ann"), 100*money.Unit)})

	settle := func(r *ledger.Reservation, id string, cost money.Amount, ended usage.Ended) {
		c := aCall(f, id, "ann")
		c.Time = time.Date(2026, 11, 20, 12, 0, int(id[0]-'a'), 0, time.UTC).UnixMilli()
		c.Ended = ended
		r.Settle(c, cost*money.Unit, ended != "")
		f.settled()
		f.clock.Advance(time.Minute)
	}
	settle(f.reserve(history, 7*money.Unit), "a", 5, usage.Complete)
	long := f.reserve(history, 7*money.Unit)
	settle(long, "b", 3, "")
	settle(long, "b", 2, usage.ClientGone)
	settle(f.reserve(history, 7*money.Unit), "c", 4, "") // the call stays open
	settle(f.reserve(history, 7*money.Unit), "d", 0, usage.Complete)
	settle(f.reserve(ledger.Payer{User: "ann"}, money.Unit), "e", 3, usage.MoneyOut)

	hold := func(id journal.ID, amount money.Amount) {
		r := f.reserve(history, amount*money.Unit)
		err := f.Update(ctx, "ann", r, func(tx *ledger.Txn) error { return r.Hold(tx, f.clock.Now(), "ann", id, "task") })
		if err != nil {
			t.Fatal(err)
		}
	}
	end := func(id journal.ID, cost money.Amount) {
		err := f.Update(ctx, "ann", nil, func(tx *ledger.Txn) error {
			_, err := journal.EndHold(tx, f.clock.Now(), journal.Usage{User: "ann", Key: "key_1", Model: "m"}, id, cost*money.Unit)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	hold(openHold, 10)
	hold(paidHold, 7)
	end(paidHold, 6)
	hold(voidHold, 2)
	end(voidHold, 0)

	_, _, err := f.Once(ctx, "ann", ledger.IdempotencyKey{Scope: "ann", Key: "k"}, func() (*ledger.Reservation, error) {
		return f.ReserveWallet(ctx, "ann", 20*money.Unit)
	}, func(tx *ledger.Txn) (any, error) {
		_, err := journal.Book(tx, f.clock.Now(), journal.Transfer{ID: purchaseID, Kind: journal.Purchase, User: "ann", Legs: slices.Concat(
			journal.LegsBetween(journal.Wallet("ann"), journal.Sold, 20*money.Unit), journal.LegsBetween(journal.Granted, journal.Quota("ann", 1, f.clock.Now()), 12*money.Unit))})
		return "sold", err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.credit("bob", 5*money.Unit)
	f.book("bob", nil, journal.Transfer{ID: refundID, Kind: journal.Refund, User: "bob", Legs: []journal.Leg{
		{Account: journal.Wallet("bob"), Amount: -5 * money.Unit}, {Account: journal.Receivable("bob"), Amount: -3 * money.Unit}, {Account: journal.Paid("stripe"), Amount: 8 * money.Unit},
	}})
	return f
}
