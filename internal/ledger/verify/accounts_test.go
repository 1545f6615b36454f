package verify

import (
	"fmt"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

var accountDamages = []damageTest{
	{
		"a balance that differs from the sum of its entries",
		func(d damage) { d.state(wallet, func(s *journal.State) { s.Balance += money.Unit }) },
		[]string{
			"account u/ann/wallet: it has 63.00 with 10.00 held, its last entry left 62.00 with 10.00 held",
			"all accounts: the sum of their balances is 1.00, not zero: money was created or lost",
		},
	},
	{
		"a held amount that is larger than the holds",
		func(d damage) { d.state(wallet, func(s *journal.State) { s.Held += money.Unit }) },
		[]string{
			"account u/ann/wallet: it has 62.00 with 11.00 held, its last entry left 62.00 with 10.00 held",
		},
	},
	{
		"an account without a record",
		func(d damage) { d.remove(journal.AccountKey(usedQuota)) },
		[]string{
			"account u/ann/quota/1/1795176360: it has entries, but no record",
			"all accounts: the sum of their balances is -12.00, not zero: money was created or lost",
		},
	},
	{
		"an account without entries",
		func(d damage) { d.set(journal.AccountKey(journal.Wallet("eve")), journal.State{}.Encode()) },
		[]string{"account u/eve/wallet: it has no entries"},
	},
	{
		"an account that cannot be read",
		func(d damage) { d.set(journal.AccountKey(journal.Receivable("eve")), []byte{9}) },
		[]string{"account u/eve/receivable: an account record of 1 bytes cannot be read by this build"},
	},
	{
		"an entry that is missing",
		func(d damage) { d.remove(journal.EntryKey(wallet, 7)) },
		[]string{
			"account u/ann/wallet: entry 7 is missing",
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet names entry 7, which is missing", openHold),
		},
	},
	{
		"entries that are missing at the beginning",
		func(d damage) {
			d.remove(journal.EntryKey(usedQuota, 1))
			d.remove(journal.EntryKey(journal.Wallet("bob"), 1))
			d.remove(journal.EntryKey(journal.Wallet("bob"), 2))
		},
		[]string{
			fmt.Sprintf("account %s: entry 1 is missing", usedQuota),
			"account u/bob/wallet: the entries 1 to 2 are missing",
			"transfer {credit of bob}: its leg on u/bob/wallet names entry 1, which is missing",
			fmt.Sprintf("transfer %v: its leg on %s names entry 1, which is missing", purchaseID, usedQuota),
			fmt.Sprintf("transfer %v: its leg on u/bob/wallet names entry 2, which is missing", refundID),
		},
	},
	{
		"an extra entry",
		func(d damage) { d.set(journal.EntryKey(wallet, 13), d.get(journal.EntryKey(wallet, 12))) },
		[]string{
			"account u/ann/wallet: entry 13 exists, but the record counts only 12",
			"account u/ann/wallet: entry 12 left 62.00 with 10.00 held, entry 13 began with 82.00 with 10.00 held",
			fmt.Sprintf("account u/ann/wallet: entry 13 is of transfer %v, which has no such leg", purchaseID),
		},
	},
	{
		"an entry that does not begin with the balance of the previous entry",
		func(d damage) { d.entry(wallet, 8, func(e *journal.Entry) { e.After.Balance += money.Unit }) },
		[]string{
			"account u/ann/wallet: entry 8 left 89.00 with 17.00 held, entry 9 began with 88.00 with 17.00 held",
			"account u/ann/wallet: entry 7 left 88.00 with 10.00 held, entry 8 began with 89.00 with 10.00 held",
		},
	},
	{
		"a first entry that does not begin with zero",
		func(d damage) { d.entry(usedQuota, 1, func(e *journal.Entry) { e.Amount -= money.Unit }) },
		[]string{
			fmt.Sprintf("account %s: its first entry began with 1.00", usedQuota),
			fmt.Sprintf("transfer %v: its leg on %s is 12.00, but entry 1 is 11.00", purchaseID, usedQuota),
		},
	},
	{
		"an entry of an unknown kind",
		func(d damage) {
			entry := slices.Clone(d.get(journal.EntryKey(wallet, 7)))
			entry[1] = 200
			d.set(journal.EntryKey(wallet, 7), entry)
		},
		[]string{"account u/ann/wallet: entry 7 cannot be read by this build"},
	},
	{
		"an invalid key of an entry",
		func(d damage) { d.set([]byte("entry/u/ann/wallet"), nil) },
		[]string{`the entries: "entry/u/ann/wallet" is not the key of an entry`},
	},
	{
		"a wallet that fell below zero",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Debit, User: "eve", Legs: journal.LegsBetween(journal.Wallet("eve"), journal.Operator, 4*money.Unit)})
			d.book(journal.Transfer{ID: journal.IDOf("more"), Kind: journal.Debit, User: "eve", Legs: journal.LegsBetween(journal.Wallet("eve"), journal.Operator, 1*money.Unit)})
			d.book(journal.Transfer{ID: journal.IDOf("back"), Kind: journal.Credit, User: "eve", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("eve"), 5*money.Unit)})
		},
		[]string{"account u/eve/wallet: the available amount is negative: entry 1 left -4.00, the first of 2 such entries"},
	},
	{
		"a positive receivable",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Clear, User: "bob", Legs: journal.LegsBetween(journal.Operator, journal.Receivable("bob"), 4*money.Unit)})
		},
		[]string{"account u/bob/receivable: the receivable is positive: entry 2 left 1.00, the first of 1 such entries"},
	},
	{
		"a negative held amount",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Dispute, User: "bob", Legs: []journal.Leg{{Account: journal.Receivable("bob"), Held: -2 * money.Unit}}})
		},
		[]string{
			"account u/bob/receivable: the held amount is negative: entry 2 left -3.00 with -2.00 held, the first of 1 such entries",
			fmt.Sprintf("transfer %v: a dispute must not change u/bob/receivable by 0.00 with -2.00 held", extra),
		},
	},
	{
		"a hold on a system account",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Dispute, User: "bob", Legs: []journal.Leg{{Account: journal.Sold, Held: 2 * money.Unit}}})
		},
		[]string{
			"account s/sold/20261120: 2.00 is held, but a system account has no holds",
			fmt.Sprintf("transfer %v: a dispute must not change s/sold/20261120 by 0.00 with 2.00 held", extra),
		},
	},
	{
		"a transfer that creates money",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Credit, User: "ann", Legs: []journal.Leg{{Account: wallet, Amount: money.Unit}}})
		},
		[]string{
			"all accounts: the sum of their balances is 1.00, not zero: money was created or lost",
			fmt.Sprintf("transfer %v: the sum of its legs is 1.00, not zero", extra),
		},
	},
}
