package verify

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// System accounts in the history.
const (
	soldThen     = journal.Sold + "/20261120"
	spentThen    = journal.Spent + "/20261120"
	operatorThen = journal.Operator + "/20261120"
)

var harmsToSystem = []harm{
	{
		"a system account that is one nano-unit off",
		func(d damage) { d.state(soldThen, func(s *journal.State) { s.Balance++ }) },
		[]string{
			"all accounts: the sum of their balances is 0.000000001, not zero: money has come from nowhere or gone",
			"account s/sold/20261120: it has 20.000000001, its legs come to 20.00",
		},
	},
	{
		"two system accounts that make up for each other",
		func(d damage) {
			d.state(soldThen, func(s *journal.State) { s.Balance++ })
			d.state(spentThen, func(s *journal.State) { s.Balance-- })
		},
		[]string{
			"account s/sold/20261120: it has 20.000000001, its legs come to 20.00",
			"account s/spent/20261120: it has 17.999999999, its legs come to 18.00",
		},
	},
	{
		"a system account on which something is held",
		func(d damage) { d.state(soldThen, func(s *journal.State) { s.Held++ }) },
		[]string{
			"account s/sold/20261120: 0.000000001 is held, and nothing is ever held on a system account",
			"account s/sold/20261120: it has 20.00 with 0.000000001 held, its legs come to 20.00",
		},
	},
	{
		"a system account that counts more legs than there are",
		func(d damage) { d.state(spentThen, func(s *journal.State) { s.Entries++ }) },
		[]string{"account s/spent/20261120: its count of legs is 7, transfers have 6"},
	},
	{
		"a system account without a record",
		func(d damage) { d.remove(journal.AccountKey(soldThen)) },
		[]string{
			"all accounts: the sum of their balances is -20.00, not zero: money has come from nowhere or gone",
			"account s/sold/20261120: transfers change it, but it has no record",
		},
	},
	{
		"a system account without a record, and a number that none of its legs has",
		func(d damage) {
			d.remove(journal.AccountKey(operatorThen))
			d.transfer(creditID, func(x *journal.Transfer) { x.Legs[0].Number = 3 })
		},
		[]string{
			"all accounts: the sum of their balances is 105.00, not zero: money has come from nowhere or gone",
			"account s/operator/20261120: transfers change it, but it has no record",
			"account s/operator/20261120: the numbers of its legs are not those from 1 to 2, each once: the greatest is 3",
		},
	},
	{
		"a system account without legs",
		func(d damage) { d.set(journal.AccountKey(journal.Sold+"/20261121"), journal.State{}.Encode()) },
		[]string{"account s/sold/20261121: no transfer changes it"},
	},
	{
		"a system account that cannot be read",
		func(d damage) { d.set(journal.AccountKey(journal.Sold+"/20261121"), []byte{9}) },
		[]string{"account s/sold/20261121: an account record of 1 bytes cannot be read by this build"},
	},
	{
		"an account that is neither of a user nor a system account",
		func(d damage) { d.set(journal.AccountKey("x"), journal.State{Entries: 1}.Encode()) },
		[]string{"account x: entry 1 is missing"},
	},
	{
		"a leg on the system accounts of another amount",
		func(d damage) {
			d.transfer(purchaseID, func(x *journal.Transfer) { x.Legs[1].Amount++ })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is 0.000000001, not zero", purchaseID),
			"account s/sold/20261120: it has 20.00, its legs come to 20.000000001",
		},
	},
	{
		"two legs on the system accounts that make up for each other",
		func(d damage) {
			d.transfer(purchaseID, func(x *journal.Transfer) {
				x.Legs[1].Amount++
				x.Legs[2].Amount--
			})
		},
		[]string{
			"account s/granted/20261120: it has -12.00, its legs come to -12.000000001",
			"account s/sold/20261120: it has 20.00, its legs come to 20.000000001",
		},
	},
	{
		"a leg on the system accounts that is missing",
		func(d damage) {
			d.transfer(creditID, func(x *journal.Transfer) { x.Legs = x.Legs[1:] })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is 100.00, not zero", creditID),
			"account s/operator/20261120: its count of legs is 2, transfers have 1",
			"account s/operator/20261120: it has -105.00, its legs come to -5.00",
		},
	},
	{
		"a leg on the system accounts that is there twice",
		func(d damage) {
			d.transfer(creditID, func(x *journal.Transfer) { x.Legs = append(x.Legs, x.Legs[0]) })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is -100.00, not zero", creditID),
			"account s/operator/20261120: its count of legs is 2, transfers have 3",
			"account s/operator/20261120: it has -105.00, its legs come to -205.00",
		},
	},
	{
		"a leg that has come to another system account",
		func(d damage) {
			d.transfer(refundID, func(x *journal.Transfer) { x.Legs[2].Account = journal.Paid("till") + "/20261120" })
		},
		[]string{
			"account s/paid/stripe/20261120: its count of legs is 1, transfers have 0",
			"account s/paid/stripe/20261120: it has 8.00, its legs come to 0.00",
			"account s/paid/till/20261120: transfers change it, but it has no record",
		},
	},
	{
		"a number that no leg on the system accounts has",
		func(d damage) { d.transfer(creditID, func(x *journal.Transfer) { x.Legs[0].Number = 3 }) },
		[]string{"account s/operator/20261120: the numbers of its legs are not those from 1 to 2, each once: the greatest is 3"},
	},
	{
		"a number that two legs on the system accounts have",
		func(d damage) { d.transfer(creditID, func(x *journal.Transfer) { x.Legs[0].Number = 2 }) },
		[]string{"account s/operator/20261120: the numbers of its legs are not those from 1 to 2, each once: the greatest is 2"},
	},
	{
		"an entry of a system account",
		func(d damage) {
			x := d.read(purchaseID)
			e := x.Entry(x.Legs[1])
			d.set(journal.EntryKey(soldThen, 1), e.Encode())
		},
		[]string{"account s/sold/20261120: entry 1 is there, and a system account has none"},
	},
	{
		"a system account that has entries alone",
		func(d damage) {
			x := d.read(purchaseID)
			e := x.Entry(x.Legs[1])
			d.set(journal.EntryKey(soldThen, 1), e.Encode())
			d.remove(journal.AccountKey(soldThen))
		},
		[]string{
			"account s/sold/20261120: it has entries, but no record",
			"account s/sold/20261120: entry 1 is there, and a system account has none",
			"all accounts: the sum of their balances is -20.00, not zero: money has come from nowhere or gone",
		},
	},
}

// TestVerifyFindsEachChangeOfALegOnASystemAccount changes each of them in each way by
// which it is another.
func TestVerifyFindsEachChangeOfALegOnASystemAccount(t *testing.T) {
	t.Parallel()
	changes := map[string]func(x *journal.Transfer, i int){
		"amount":       func(x *journal.Transfer, i int) { x.Legs[i].Amount++ },
		"held":         func(x *journal.Transfer, i int) { x.Legs[i].Held++ },
		"next number":  func(x *journal.Transfer, i int) { x.Legs[i].Number++ },
		"no number":    func(x *journal.Transfer, i int) { x.Legs[i].Number = 0 },
		"other family": func(x *journal.Transfer, i int) { x.Legs[i].Account = "s/other/20261120" },
		"other day":    func(x *journal.Transfer, i int) { x.Legs[i].Account = x.Legs[i].Account.Family() + "/20261119" },
		"gone":         func(x *journal.Transfer, i int) { x.Legs = slices.Delete(x.Legs, i, i+1) },
		"twice":        func(x *journal.Transfer, i int) { x.Legs = append(x.Legs, x.Legs[i]) },
	}
	f := newHistory(t)
	var found []journal.Transfer
	f.change(func(tx storage.Txn) error {
		v := &verification{reader: tx}
		for x, err := range v.eachTransfer() {
			if err != nil {
				return err
			}
			found = append(found, *x)
		}
		return v.err
	})
	write := func(x journal.Transfer) {
		f.change(func(tx storage.Txn) error {
			key := journal.TransferKey(x.ID)
			return tx.Set(key, x.Encode(key), time.Time{})
		})
	}
	tried := 0
	for _, x := range found {
		for i, leg := range x.Legs {
			if !leg.Account.System() {
				continue
			}
			for what, change := range changes {
				changed := x
				changed.Legs = slices.Clone(x.Legs)
				change(&changed, i)
				write(changed)
				if problems, _ := f.verify(); len(problems) == 0 {
					t.Errorf("%s of the leg on %s of %s: nothing was found", what, leg.Account, whereTransfer(x.ID))
				}
				tried++
			}
		}
		write(x)
	}
	f.verified()
	if want := 11 * len(changes); tried != want {
		t.Errorf("%d changes were tried, not %d", tried, want)
	}
}
