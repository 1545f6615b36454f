package verify

import (
	"fmt"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

var harmsToAccounts = []harm{
	{
		"a balance that its entries do not lead to",
		func(d damage) { d.state(wallet, func(s *journal.State) { s.Balance += money.Unit }) },
		[]string{
			"account u/ann/wallet: it has 63.00 with 10.00 held, its last entry left 62.00 with 10.00 held",
			"all accounts: the sum of their balances is 1.00, not zero: money has come from nowhere or gone",
		},
	},
	{
		"more held than the holds of an account",
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
			"all accounts: the sum of their balances is -12.00, not zero: money has come from nowhere or gone",
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
			fmt.Sprintf("transfer %v: its leg on u/ann/wallet is entry 7 there, which is missing", openHold),
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
			"transfer {credit of bob}: its leg on u/bob/wallet is entry 1 there, which is missing",
			fmt.Sprintf("transfer %v: its leg on %s is entry 1 there, which is missing", purchaseID, usedQuota),
			fmt.Sprintf("transfer %v: its leg on u/bob/wallet is entry 2 there, which is missing", refundID),
		},
	},
	{
		"an entry too many",
		func(d damage) { d.set(journal.EntryKey(wallet, 13), d.get(journal.EntryKey(wallet, 12))) },
		[]string{
			"account u/ann/wallet: entry 13 is there, but it counts only 12",
			"account u/ann/wallet: entry 12 left 62.00 with 10.00 held, entry 13 began with 82.00 with 10.00 held",
			fmt.Sprintf("account u/ann/wallet: entry 13 is of transfer %v, which has no such leg", purchaseID),
		},
	},
	{
		"an entry that does not go on where the one before it ended",
		func(d damage) { d.entry(wallet, 8, func(e *journal.Entry) { e.After.Balance += money.Unit }) },
		[]string{
			"account u/ann/wallet: entry 8 left 89.00 with 17.00 held, entry 9 began with 88.00 with 17.00 held",
			"account u/ann/wallet: entry 7 left 88.00 with 10.00 held, entry 8 began with 89.00 with 10.00 held",
		},
	},
	{
		"a first entry that does not begin with nothing",
		func(d damage) { d.entry(usedQuota, 1, func(e *journal.Entry) { e.Amount -= money.Unit }) },
		[]string{
			fmt.Sprintf("account %s: its first entry began with 1.00", usedQuota),
			fmt.Sprintf("transfer %v: its leg on %s is 12.00, entry 1 there is 11.00", purchaseID, usedQuota),
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
		"a key that is none of an entry",
		func(d damage) { d.set([]byte("entry/u/ann/wallet"), nil) },
		[]string{`the entries: "entry/u/ann/wallet" is not the key of one`},
	},
	{
		"a wallet that fell below zero",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Debit, User: "eve", Legs: journal.LegsBetween(journal.Wallet("eve"), journal.Operator, 4*money.Unit)})
			d.book(journal.Transfer{ID: journal.IDOf("more"), Kind: journal.Debit, User: "eve", Legs: journal.LegsBetween(journal.Wallet("eve"), journal.Operator, 1*money.Unit)})
			d.book(journal.Transfer{ID: journal.IDOf("back"), Kind: journal.Credit, User: "eve", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("eve"), 5*money.Unit)})
		},
		[]string{"account u/eve/wallet: less than nothing is available: entry 1 left -4.00, the first of 2 that did so"},
	},
	{
		"a receivable above zero",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Clear, User: "bob", Legs: journal.LegsBetween(journal.Operator, journal.Receivable("bob"), 4*money.Unit)})
		},
		[]string{"account u/bob/receivable: a receivable is above zero: entry 2 left 1.00, the first of 1 that did so"},
	},
	{
		"less than nothing held",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Dispute, User: "bob", Legs: []journal.Leg{{Account: journal.Receivable("bob"), Held: -2 * money.Unit}}})
		},
		[]string{
			"account u/bob/receivable: less than nothing is held: entry 2 left -3.00 with -2.00 held, the first of 1 that did so",
			fmt.Sprintf("transfer %v: it is a dispute, which does not change u/bob/receivable by 0.00 with -2.00 held", extra),
		},
	},
	{
		"money of the system accounts that is held",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Dispute, User: "bob", Legs: []journal.Leg{{Account: journal.Sold, Held: 2 * money.Unit}}})
		},
		[]string{
			"account s/sold/20261120: 2.00 is held, and nothing is ever held on a system account",
			fmt.Sprintf("transfer %v: it is a dispute, which does not change s/sold/20261120 by 0.00 with 2.00 held", extra),
		},
	},
	{
		"money from nowhere",
		func(d damage) {
			d.book(journal.Transfer{ID: extra, Kind: journal.Credit, User: "ann", Legs: []journal.Leg{{Account: wallet, Amount: money.Unit}}})
		},
		[]string{
			"all accounts: the sum of their balances is 1.00, not zero: money has come from nowhere or gone",
			fmt.Sprintf("transfer %v: the sum of its legs is 1.00, not zero", extra),
		},
	},
}
