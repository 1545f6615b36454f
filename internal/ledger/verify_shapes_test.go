package ledger

import (
	"fmt"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// misshapen is the harm of a transfer that is booked with all that belongs to it,
// and is not one that anything here books.
func misshapen(name string, x Transfer, want ...string) harm {
	x.ID = extra
	for i := range want {
		want[i] = fmt.Sprintf("transfer %v: %s", extra, want[i])
	}
	return harm{name, func(d damage) {
		x.Legs = slices.Clone(x.Legs)
		d.book(x)
	}, want}
}

// usedQuota is the one that was granted to ann.
const usedQuota Account = "u/ann/quota/1/1795176360"

var harmsToShapes = []harm{
	misshapen("a credit of a quota",
		Transfer{Kind: Credit, User: "ann", Legs: LegsBetween(Operator, usedQuota, money.Unit)},
		"it is a credit, which does not change u/ann/quota/1/1795176360 by 1.00"),
	misshapen("a credit that a payment service pays",
		Transfer{Kind: Credit, User: "ann", Legs: LegsBetween(Paid("stripe"), wallet, money.Unit)},
		"it is a credit, which does not change s/paid/stripe/20261120 by -1.00"),
	misshapen("a credit of another's wallet",
		Transfer{Kind: Credit, User: "ann", Legs: LegsBetween(Operator, Wallet("bob"), money.Unit)},
		`it is of user "ann", and changes u/bob/wallet`),
	misshapen("a debit that pays for calls",
		Transfer{Kind: Debit, User: "ann", Legs: LegsBetween(wallet, Spent, money.Unit)},
		"it is a debit, which does not change s/spent/20261120 by 1.00"),
	misshapen("a debit that gives",
		Transfer{Kind: Debit, User: "ann", Legs: LegsBetween(Operator, wallet, money.Unit)},
		"it is a debit, which does not change s/operator/20261120 by -1.00",
		"it is a debit, which does not change u/ann/wallet by 1.00"),
	misshapen("a clear that takes from a quota",
		Transfer{Kind: Clear, User: "ann", Legs: LegsBetween(usedQuota, Operator, money.Unit)},
		"it is a clear, which does not change u/ann/quota/1/1795176360 by -1.00",
		"it is a clear, which does not change s/operator/20261120 by 1.00"),
	misshapen("a top-up from the operator",
		Transfer{Kind: TopUp, User: "ann", Legs: LegsBetween(Operator, wallet, money.Unit)},
		"it is a topup, which does not change s/operator/20261120 by -1.00"),
	misshapen("a top-up from no payment service",
		Transfer{Kind: TopUp, User: "ann", Legs: LegsBetween(Paid(""), wallet, money.Unit)},
		"it is a topup, which does not change s/paid//20261120 by -1.00"),
	misshapen("a refund that gives",
		Transfer{Kind: Refund, User: "ann", Legs: LegsBetween(Paid("stripe"), wallet, money.Unit)},
		"it is a refund, which does not change s/paid/stripe/20261120 by -1.00",
		"it is a refund, which does not change u/ann/wallet by 1.00"),
	misshapen("a dispute that the operator pays",
		Transfer{Kind: Dispute, User: "ann", Legs: LegsBetween(Operator, Paid("stripe"), money.Unit)},
		"it is a dispute, which does not change s/operator/20261120 by -1.00"),
	misshapen("a dispute that comes back to another",
		Transfer{Kind: Restore, User: "ann", Legs: LegsBetween(Paid("stripe"), Wallet("bob"), money.Unit)},
		`it is of user "ann", and changes u/bob/wallet`),
	misshapen("a purchase that pays for calls",
		Transfer{Kind: Purchase, User: "ann", Legs: LegsBetween(wallet, Spent, money.Unit)},
		"it is a purchase, which does not change s/spent/20261120 by 1.00"),
	misshapen("a renewal that takes a quota back",
		Transfer{Kind: Renewal, User: "ann", Legs: LegsBetween(usedQuota, Granted, money.Unit)},
		"it is a renewal, which does not change u/ann/quota/1/1795176360 by -1.00",
		"it is a renewal, which does not change s/granted/20261120 by 1.00"),
	misshapen("a grant to a wallet",
		Transfer{Kind: Grant, User: "ann", Legs: LegsBetween(Granted, wallet, money.Unit)},
		"it is a grant, which does not change u/ann/wallet by 1.00"),
	misshapen("a grant to no account of a quota",
		Transfer{Kind: Grant, User: "ann", Legs: LegsBetween(Granted, "u/ann/quota/1/07", money.Unit)},
		"it is a grant, which does not change u/ann/quota/1/07 by 1.00"),
	misshapen("a transfer of nobody",
		Transfer{Kind: Credit, Legs: LegsBetween(Operator, wallet, money.Unit)},
		"it is a credit of no user"),
	misshapen("calls of one user",
		Transfer{Kind: Calls, User: "ann", Legs: []Leg{{Account: underKey, Amount: -1}}},
		`it is of calls, and said to be of user "ann" alone`),
	misshapen("a void that pays",
		Transfer{Kind: Void, User: "ann", Reference: openHold.String(), Legs: []Leg{{Account: underKey, Amount: -1}}},
		"it is a void, which does not change "+string(underKey)+" by -0.000000001",
		fmt.Sprintf("it ends hold %v, which only transfer %v may do: a hold ends once", openHold, endOf(openHold))),
	misshapen("an account that nothing makes",
		Transfer{Kind: Debit, User: "ann", Legs: LegsBetween(wallet, "u/ann/balances", money.Unit)},
		"it is a debit, which does not change u/ann/balances by 1.00"),
	misshapen("a system account that nothing makes",
		Transfer{Kind: Debit, User: "ann", Legs: LegsBetween(wallet, "s/gift", money.Unit)},
		"it is a debit, which does not change s/gift/20261120 by 1.00"),
	misshapen("a leg of nothing",
		Transfer{Kind: Credit, User: "ann", Legs: []Leg{{Account: wallet}}},
		"its leg on u/ann/wallet is of nothing"),
	{
		"legs that come to nothing by going around the range of amounts",
		func(d damage) {
			x := Transfer{ID: extra, Kind: Grant, User: "eve"}
			for _, period := range []Account{"1", "2", "3", "4"} {
				x.Legs = append(x.Legs, Leg{Account: "u/eve/quota/2/" + period, Amount: 1 << 62})
			}
			d.book(x)
		},
		[]string{
			"all accounts: the sum of their balances is more than an amount can be, not zero: money has come from nowhere or gone",
			fmt.Sprintf("transfer %v: the sum of its legs is more than an amount can be, not zero", extra),
		},
	},
	{
		"a transfer of another day than that of the account they are entered in",
		func(d damage) {
			x := Transfer{ID: extra, Kind: Debit, User: "ann", Legs: LegsBetween(wallet, Operator, money.Unit)}
			d.book(x)
			d.transfer(extra, func(x *Transfer) { x.Time += 24 * 60 * 60 * 1000 })
			d.entry(wallet, 13, func(e *Entry) { e.Time = e.Time.AddDate(0, 0, 1) })
		},
		[]string{fmt.Sprintf("transfer %v: it is of 2026-11-21T12:06:00Z, and changes s/operator/20261120", extra)},
	},
}

func TestTransfersAreScannedWithoutThoseOfCalls(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	kinds := make(map[Kind]int)
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		err := eachRecord(r, transferPrefix, func(key, record []byte) error {
			x, err := decodeTransfer(key, record)
			if isOfCalls(record) != (x.Kind == Calls) {
				t.Errorf("the record %q of a %s is taken for one of calls, or not", record, x.Kind)
			}
			if x.Kind != Calls {
				kinds[x.Kind]++
			}
			return err
		})
		if err != nil {
			return err
		}
		return ScanTransfers(r, func(x Transfer) error {
			if kinds[x.Kind]--; x.Kind == Calls || len(x.Legs) == 0 {
				t.Errorf("scanned is %+v", x)
			}
			return nil
		})
	})
	if err != nil || kinds[Credit] != 0 || kinds[Hold] != 0 || kinds[Refund] != 0 || len(kinds) < 5 {
		t.Errorf("left out were %v, %v", kinds, err)
	}
	for _, record := range []string{"", "\x01", "\x01{"} {
		if isOfCalls([]byte(record)) {
			t.Errorf("%q is taken for one of calls", record)
		}
	}
}
