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
	soldAccount     = journal.Sold + "/20261120"
	spentAccount    = journal.Spent + "/20261120"
	operatorAccount = journal.Operator + "/20261120"
)

var systemDamages = []damageTest{
	{
		"a system account with one nano-unit too much",
		func(d damage) { d.state(soldAccount, func(s *journal.State) { s.Balance++ }) },
		[]string{
			"all accounts: the sum of their balances is 0.000000001, not zero: money was created or lost",
			"account s/sold/20261120: it has 20.000000001, the sum of its legs is 20.00",
		},
	},
	{
		"two system accounts with opposite errors",
		func(d damage) {
			d.state(soldAccount, func(s *journal.State) { s.Balance++ })
			d.state(spentAccount, func(s *journal.State) { s.Balance-- })
		},
		[]string{
			"account s/sold/20261120: it has 20.000000001, the sum of its legs is 20.00",
			"account s/spent/20261120: it has 17.999999999, the sum of its legs is 18.00",
		},
	},
	{
		"a system account with a held amount",
		func(d damage) { d.state(soldAccount, func(s *journal.State) { s.Held++ }) },
		[]string{
			"account s/sold/20261120: 0.000000001 is held, but a system account has no holds",
			"account s/sold/20261120: it has 20.00 with 0.000000001 held, the sum of its legs is 20.00",
		},
	},
	{
		"a system account with too high a count of legs",
		func(d damage) { d.state(spentAccount, func(s *journal.State) { s.Entries++ }) },
		[]string{"account s/spent/20261120: its count of legs is 7, transfers have 6"},
	},
	{
		"a system account without a record",
		func(d damage) { d.remove(journal.AccountKey(soldAccount)) },
		[]string{
			"all accounts: the sum of their balances is -20.00, not zero: money was created or lost",
			"account s/sold/20261120: transfers change it, but it has no record",
		},
	},
	{
		"a system account without a record and with a missing leg number",
		func(d damage) {
			d.remove(journal.AccountKey(operatorAccount))
			d.transfer(creditID, func(x *journal.Transfer) { x.Legs[0].Number = 3 })
		},
		[]string{
			"all accounts: the sum of their balances is 105.00, not zero: money was created or lost",
			"account s/operator/20261120: transfers change it, but it has no record",
			"account s/operator/20261120: the numbers of its legs are not 1 to 2, each once: the highest is 3",
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
		"an account with an unknown prefix",
		func(d damage) { d.set(journal.AccountKey("x"), journal.State{Entries: 1}.Encode()) },
		[]string{"account x: entry 1 is missing"},
	},
	{
		"a leg on a system account with another amount",
		func(d damage) {
			d.transfer(purchaseID, func(x *journal.Transfer) { x.Legs[1].Amount++ })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is 0.000000001, not zero", purchaseID),
			"account s/sold/20261120: it has 20.00, the sum of its legs is 20.000000001",
		},
	},
	{
		"two legs on system accounts with opposite errors",
		func(d damage) {
			d.transfer(purchaseID, func(x *journal.Transfer) {
				x.Legs[1].Amount++
				x.Legs[2].Amount--
			})
		},
		[]string{
			"account s/granted/20261120: it has -12.00, the sum of its legs is -12.000000001",
			"account s/sold/20261120: it has 20.00, the sum of its legs is 20.000000001",
		},
	},
	{
		"a missing leg on a system account",
		func(d damage) {
			d.transfer(creditID, func(x *journal.Transfer) { x.Legs = x.Legs[1:] })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is 100.00, not zero", creditID),
			"account s/operator/20261120: its count of legs is 2, transfers have 1",
			"account s/operator/20261120: it has -105.00, the sum of its legs is -5.00",
		},
	},
	{
		"a duplicate leg on a system account",
		func(d damage) {
			d.transfer(creditID, func(x *journal.Transfer) { x.Legs = append(x.Legs, x.Legs[0]) })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is -100.00, not zero", creditID),
			"account s/operator/20261120: its count of legs is 2, transfers have 3",
			"account s/operator/20261120: it has -105.00, the sum of its legs is -205.00",
		},
	},
	{
		"a leg on the wrong system account",
		func(d damage) {
			d.transfer(refundID, func(x *journal.Transfer) { x.Legs[2].Account = journal.Paid("till") + "/20261120" })
		},
		[]string{
			"account s/paid/stripe/20261120: its count of legs is 1, transfers have 0",
			"account s/paid/stripe/20261120: it has 8.00, the sum of its legs is 0.00",
			"account s/paid/till/20261120: transfers change it, but it has no record",
		},
	},
	{
		"a missing leg number on a system account",
		func(d damage) { d.transfer(creditID, func(x *journal.Transfer) { x.Legs[0].Number = 3 }) },
		[]string{"account s/operator/20261120: the numbers of its legs are not 1 to 2, each once: the highest is 3"},
	},
	{
		"a duplicate leg number on a system account",
		func(d damage) { d.transfer(creditID, func(x *journal.Transfer) { x.Legs[0].Number = 2 }) },
		[]string{"account s/operator/20261120: the numbers of its legs are not 1 to 2, each once: the highest is 2"},
	},
	{
		"an entry of a system account",
		func(d damage) {
			x := d.read(purchaseID)
			e := x.Entry(x.Legs[1])
			d.set(journal.EntryKey(soldAccount, 1), e.Encode())
		},
		[]string{"account s/sold/20261120: entry 1 exists, but a system account has no entries"},
	},
	{
		"a system account with entries and without a record",
		func(d damage) {
			x := d.read(purchaseID)
			e := x.Entry(x.Legs[1])
			d.set(journal.EntryKey(soldAccount, 1), e.Encode())
			d.remove(journal.AccountKey(soldAccount))
		},
		[]string{
			"account s/sold/20261120: it has entries, but no record",
			"account s/sold/20261120: entry 1 exists, but a system account has no entries",
			"all accounts: the sum of their balances is -20.00, not zero: money was created or lost",
		},
	},
}

// TestVerifyFindsEachChangeOfALegOnASystemAccount makes each kind of change to each such leg.
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
					t.Errorf("Verify does not find the change %q of the leg on %s of %s", what, leg.Account, whereTransfer(x.ID))
				}
				tried++
			}
		}
		write(x)
	}
	f.checkVerified()
	if want := 11 * len(changes); tried != want {
		t.Errorf("%d changes were tried, want %d", tried, want)
	}
}
