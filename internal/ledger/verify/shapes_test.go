package verify

import (
	"fmt"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// misshapen is the harm of a transfer that is booked with all that belongs to it,
// and is not one that anything here books.
func misshapen(name string, x journal.Transfer, want ...string) harm {
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
const usedQuota journal.Account = "u/ann/quota/1/1795176360"

var harmsToShapes = []harm{
	misshapen("a credit of a quota",
		journal.Transfer{Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, usedQuota, money.Unit)},
		"it is a credit, which does not change u/ann/quota/1/1795176360 by 1.00"),
	misshapen("a credit that a payment service pays",
		journal.Transfer{Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Paid("stripe"), wallet, money.Unit)},
		"it is a credit, which does not change s/paid/stripe/20261120 by -1.00"),
	misshapen("a credit of another's wallet",
		journal.Transfer{Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("bob"), money.Unit)},
		`it is of user "ann", and changes u/bob/wallet`),
	misshapen("a debit that pays for calls",
		journal.Transfer{Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(wallet, journal.Spent, money.Unit)},
		"it is a debit, which does not change s/spent/20261120 by 1.00"),
	misshapen("a debit that gives",
		journal.Transfer{Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(journal.Operator, wallet, money.Unit)},
		"it is a debit, which does not change s/operator/20261120 by -1.00",
		"it is a debit, which does not change u/ann/wallet by 1.00"),
	misshapen("a clear that takes from a quota",
		journal.Transfer{Kind: journal.Clear, User: "ann", Legs: journal.LegsBetween(usedQuota, journal.Operator, money.Unit)},
		"it is a clear, which does not change u/ann/quota/1/1795176360 by -1.00",
		"it is a clear, which does not change s/operator/20261120 by 1.00"),
	misshapen("a top-up from the operator",
		journal.Transfer{Kind: journal.TopUp, User: "ann", Legs: journal.LegsBetween(journal.Operator, wallet, money.Unit)},
		"it is a topup, which does not change s/operator/20261120 by -1.00"),
	misshapen("a top-up from no payment service",
		journal.Transfer{Kind: journal.TopUp, User: "ann", Legs: journal.LegsBetween(journal.Paid(""), wallet, money.Unit)},
		"it is a topup, which does not change s/paid//20261120 by -1.00"),
	misshapen("a refund that gives",
		journal.Transfer{Kind: journal.Refund, User: "ann", Legs: journal.LegsBetween(journal.Paid("stripe"), wallet, money.Unit)},
		"it is a refund, which does not change s/paid/stripe/20261120 by -1.00",
		"it is a refund, which does not change u/ann/wallet by 1.00"),
	misshapen("a dispute that the operator pays",
		journal.Transfer{Kind: journal.Dispute, User: "ann", Legs: journal.LegsBetween(journal.Operator, journal.Paid("stripe"), money.Unit)},
		"it is a dispute, which does not change s/operator/20261120 by -1.00"),
	misshapen("a dispute that comes back to another",
		journal.Transfer{Kind: journal.Restore, User: "ann", Legs: journal.LegsBetween(journal.Paid("stripe"), journal.Wallet("bob"), money.Unit)},
		`it is of user "ann", and changes u/bob/wallet`),
	misshapen("a purchase that pays for calls",
		journal.Transfer{Kind: journal.Purchase, User: "ann", Legs: journal.LegsBetween(wallet, journal.Spent, money.Unit)},
		"it is a purchase, which does not change s/spent/20261120 by 1.00"),
	misshapen("a renewal that takes a quota back",
		journal.Transfer{Kind: journal.Renewal, User: "ann", Legs: journal.LegsBetween(usedQuota, journal.Granted, money.Unit)},
		"it is a renewal, which does not change u/ann/quota/1/1795176360 by -1.00",
		"it is a renewal, which does not change s/granted/20261120 by 1.00"),
	misshapen("a grant to a wallet",
		journal.Transfer{Kind: journal.Grant, User: "ann", Legs: journal.LegsBetween(journal.Granted, wallet, money.Unit)},
		"it is a grant, which does not change u/ann/wallet by 1.00"),
	misshapen("a grant to no account of a quota",
		journal.Transfer{Kind: journal.Grant, User: "ann", Legs: journal.LegsBetween(journal.Granted, "u/ann/quota/1/07", money.Unit)},
		"it is a grant, which does not change u/ann/quota/1/07 by 1.00"),
	misshapen("a transfer of nobody",
		journal.Transfer{Kind: journal.Credit, Legs: journal.LegsBetween(journal.Operator, wallet, money.Unit)},
		"it is a credit of no user"),
	misshapen("calls of one user",
		journal.Transfer{Kind: journal.Calls, User: "ann", Legs: []journal.Leg{{Account: underKey, Amount: -1}}},
		`it is of calls, and said to be of user "ann" alone`),
	misshapen("a void that pays",
		journal.Transfer{Kind: journal.Void, User: "ann", Reference: openHold.String(), Legs: []journal.Leg{{Account: underKey, Amount: -1}}},
		"it is a void, which does not change "+string(underKey)+" by -0.000000001",
		fmt.Sprintf("it ends hold %v, which only transfer %v may do: a hold ends once", openHold, journal.EndOf(openHold))),
	misshapen("an account that nothing makes",
		journal.Transfer{Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(wallet, "u/ann/balances", money.Unit)},
		"it is a debit, which does not change u/ann/balances by 1.00"),
	misshapen("a system account that nothing makes",
		journal.Transfer{Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(wallet, "s/gift", money.Unit)},
		"it is a debit, which does not change s/gift/20261120 by 1.00"),
	misshapen("a leg of nothing",
		journal.Transfer{Kind: journal.Credit, User: "ann", Legs: []journal.Leg{{Account: wallet}}},
		"its leg on u/ann/wallet is of nothing"),
	{
		"legs that come to nothing by going around the range of amounts",
		func(d damage) {
			x := journal.Transfer{ID: extra, Kind: journal.Grant, User: "eve"}
			for _, period := range []journal.Account{"1", "2", "3", "4"} {
				x.Legs = append(x.Legs, journal.Leg{Account: "u/eve/quota/2/" + period, Amount: 1 << 62})
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
			x := journal.Transfer{ID: extra, Kind: journal.Debit, User: "ann", Legs: journal.LegsBetween(wallet, journal.Operator, money.Unit)}
			d.book(x)
			d.transfer(extra, func(x *journal.Transfer) { x.Time += 24 * 60 * 60 * 1000 })
			d.entry(wallet, 13, func(e *journal.Entry) { e.Time = e.Time.AddDate(0, 0, 1) })
		},
		[]string{fmt.Sprintf("transfer %v: it is of 2026-11-21T12:06:00Z, and changes s/operator/20261120", extra)},
	},
}

func TestTransfersAreScannedWithoutThoseOfCalls(t *testing.T) {
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
				t.Errorf("scanned is %+v", x)
			}
			return nil
		})
	})
	if err != nil || kinds[journal.Credit] != 0 || kinds[journal.Hold] != 0 || kinds[journal.Refund] != 0 || len(kinds) < 5 {
		t.Errorf("left out were %v, %v", kinds, err)
	}
}
