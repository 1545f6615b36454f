package verify

import (
	"fmt"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// wrongTransfer returns a damageTest with a consistent transfer that the ledger would never book.
func wrongTransfer(name string, x journal.Transfer, want ...string) damageTest {
	x.ID = extra
	for i := range want {
		want[i] = fmt.Sprintf("transfer %v: %s", extra, want[i])
	}
	return damageTest{name, func(d damage) {
		x.Legs = slices.Clone(x.Legs)
		d.book(x)
	}, want}
}

// usedQuota is the quota that was granted to ann.
const usedQuota journal.Account = "u/ann/quota/1/1795176360"

var shapeDamages = []damageTest{
	wrongTransfer("a credit of a quota",
		journal.Transfer{Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, usedQuota, money.Unit)},
		"a credit must not change u/ann/quota/1/1795176360 by 1.00"),
	wrongTransfer("a credit that a payment service pays",
		journal.Transfer{Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Paid("stripe"), wallet, money.Unit)},
		"a credit must not change s/paid/stripe/20261120 by -1.00"),
	wrongTransfer("a credit of the wallet of another user",
		journal.Transfer{Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("bob"), money.Unit)},
		`it is of user "ann", but changes u/bob/wallet`),
	wrongTransfer("a debit that pays for calls",
		journal.Transfer{Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(wallet, journal.Spent, money.Unit)},
		"a debit must not change s/spent/20261120 by 1.00"),
	wrongTransfer("a debit that increases the wallet",
		journal.Transfer{Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(journal.Operator, wallet, money.Unit)},
		"a debit must not change s/operator/20261120 by -1.00",
		"a debit must not change u/ann/wallet by 1.00"),
	wrongTransfer("a clear that decreases a quota",
		journal.Transfer{Kind: journal.Clear, User: "ann", Legs: journal.LegsBetween(usedQuota, journal.Operator, money.Unit)},
		"a clear must not change u/ann/quota/1/1795176360 by -1.00",
		"a clear must not change s/operator/20261120 by 1.00"),
	wrongTransfer("a top-up from the operator",
		journal.Transfer{Kind: journal.TopUp, User: "ann", Legs: journal.LegsBetween(journal.Operator, wallet, money.Unit)},
		"a topup must not change s/operator/20261120 by -1.00"),
	wrongTransfer("a top-up from no payment service",
		journal.Transfer{Kind: journal.TopUp, User: "ann", Legs: journal.LegsBetween(journal.Paid(""), wallet, money.Unit)},
		"a topup must not change s/paid//20261120 by -1.00"),
	wrongTransfer("a refund that increases the wallet",
		journal.Transfer{Kind: journal.Refund, User: "ann", Legs: journal.LegsBetween(journal.Paid("stripe"), wallet, money.Unit)},
		"a refund must not change s/paid/stripe/20261120 by -1.00",
		"a refund must not change u/ann/wallet by 1.00"),
	wrongTransfer("a dispute that the operator pays",
		journal.Transfer{Kind: journal.Dispute, User: "ann", Legs: journal.LegsBetween(journal.Operator, journal.Paid("stripe"), money.Unit)},
		"a dispute must not change s/operator/20261120 by -1.00"),
	wrongTransfer("a restored dispute in the wallet of another user",
		journal.Transfer{Kind: journal.Restore, User: "ann", Legs: journal.LegsBetween(journal.Paid("stripe"), journal.Wallet("bob"), money.Unit)},
		`it is of user "ann", but changes u/bob/wallet`),
	wrongTransfer("a purchase that pays for calls",
		journal.Transfer{Kind: journal.Purchase, User: "ann", Legs: journal.LegsBetween(wallet, journal.Spent, money.Unit)},
		"a purchase must not change s/spent/20261120 by 1.00"),
	wrongTransfer("a renewal that decreases a quota",
		journal.Transfer{Kind: journal.Renewal, User: "ann", Legs: journal.LegsBetween(usedQuota, journal.Granted, money.Unit)},
		"a renewal must not change u/ann/quota/1/1795176360 by -1.00",
		"a renewal must not change s/granted/20261120 by 1.00"),
	wrongTransfer("a grant to a wallet",
		journal.Transfer{Kind: journal.Grant, User: "ann", Legs: journal.LegsBetween(journal.Granted, wallet, money.Unit)},
		"a grant must not change u/ann/wallet by 1.00"),
	wrongTransfer("a grant to an invalid account",
		journal.Transfer{Kind: journal.Grant, User: "ann", Legs: journal.LegsBetween(journal.Granted, "u/ann/quota/1/07", money.Unit)},
		"a grant must not change u/ann/quota/1/07 by 1.00"),
	wrongTransfer("a transfer without a user",
		journal.Transfer{Kind: journal.Credit, Legs: journal.LegsBetween(journal.Operator, wallet, money.Unit)},
		"it is a credit without a user"),
	wrongTransfer("calls of one user",
		journal.Transfer{Kind: journal.Calls, User: "ann", Legs: []journal.Leg{{Account: underKey, Amount: -1}}},
		`it is a transfer of calls, but has user "ann"`),
	wrongTransfer("a void that pays",
		journal.Transfer{Kind: journal.Void, User: "ann", Reference: openHold.String(), Legs: []journal.Leg{{Account: underKey, Amount: -1}}},
		"a void must not change "+string(underKey)+" by -0.000000001",
		fmt.Sprintf("it ends hold %v, which only transfer %v may do: a hold ends once", openHold, journal.EndOf(openHold))),
	wrongTransfer("an unknown account of a user",
		journal.Transfer{Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(wallet, "u/ann/balances", money.Unit)},
		"a debit must not change u/ann/balances by 1.00"),
	wrongTransfer("an unknown system account",
		journal.Transfer{Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(wallet, "s/gift", money.Unit)},
		"a debit must not change s/gift/20261120 by 1.00"),
	wrongTransfer("a leg that changes nothing",
		journal.Transfer{Kind: journal.Credit, User: "ann", Legs: []journal.Leg{{Account: wallet}}},
		"its leg on u/ann/wallet is zero"),
	{
		"legs whose sum overflows to zero",
		func(d damage) {
			x := journal.Transfer{ID: extra, Kind: journal.Grant, User: "eve"}
			for _, period := range []journal.Account{"1", "2", "3", "4"} {
				x.Legs = append(x.Legs, journal.Leg{Account: "u/eve/quota/2/" + period, Amount: 1 << 62})
			}
			d.book(x)
		},
		[]string{
			"all accounts: the sum of their balances is out of the range of an amount, not zero: money was created or lost",
			fmt.Sprintf("transfer %v: the sum of its legs is out of the range of an amount, not zero", extra),
		},
	},
	{
		"a transfer on the system account of another day",
		func(d damage) {
			x := journal.Transfer{ID: extra, Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(wallet, journal.Operator, money.Unit)}
			d.book(x)
			d.transfer(extra, func(x *journal.Transfer) { x.Time += 24 * 60 * 60 * 1000 })
			d.entry(wallet, 13, func(e *journal.Entry) { e.Time = e.Time.AddDate(0, 0, 1) })
		},
		[]string{fmt.Sprintf("transfer %v: it is of 2026-11-21T12:06:00Z, but changes s/operator/20261120", extra)},
	},
}

func TestScanTransfersOmitsTransfersOfCalls(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	kinds := make(map[journal.Kind]int)
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		v := &verification{reader: r}
		for x, err := range v.eachTransfer() {
			if err != nil {
				return err
			}
			if x.Kind != journal.Calls {
				kinds[x.Kind]++
			}
		}
		if v.err != nil {
			return v.err
		}
		return journal.ScanTransfers(r, func(x journal.Transfer) error {
			if kinds[x.Kind]--; x.Kind == journal.Calls || len(x.Legs) == 0 {
				t.Errorf("ScanTransfers returned %+v", x)
			}
			return nil
		})
	})
	if err != nil || kinds[journal.Credit] != 0 || kinds[journal.Hold] != 0 || kinds[journal.Refund] != 0 || len(kinds) < 5 {
		t.Errorf("ScanTransfers omitted %v, %v", kinds, err)
	}
}
