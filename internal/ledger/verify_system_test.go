package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// System accounts in the history.
const (
	soldThen     = Sold + "/20261120"
	spentThen    = Spent + "/20261120"
	operatorThen = Operator + "/20261120"
)

// enterSystem gives legs on system accounts entries, as a store of an older
// build has them: those of which has says so.
func (d damage) enterSystem(has func(a Account, number uint64) bool) {
	type line struct {
		Account
		Entry
	}
	var lines []line
	err := eachTransfer(d, func(_ []byte, x Transfer, err error) error {
		for _, leg := range x.Legs {
			if leg.Account.system() {
				lines = append(lines, line{leg.Account, x.entry(leg)})
			}
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Number, b.Number))
	})
	after := make(map[Account]State)
	for _, l := range lines {
		s := after[l.Account]
		l.After = State{Balance: s.Balance + l.Amount, Held: s.Held + l.Held, Entries: l.Number}
		after[l.Account] = l.After
		if has(l.Account, l.Number) {
			d.set(entryKey(l.Account, l.Number), l.encode())
		}
	}
}

// all is of an older store from beginning to end.
func all(Account, uint64) bool { return true }

var harmsToSystem = []harm{
	{
		"a system account that is one nano-unit off",
		func(d damage) { d.state(soldThen, func(s *State) { s.Balance++ }) },
		[]string{
			"all accounts: the sum of their balances is 0.000000001, not zero: money has come from nowhere or gone",
			"account s/sold/20261120: it has 20.000000001, its legs come to 20.00",
		},
	},
	{
		"two system accounts that make up for each other",
		func(d damage) {
			d.state(soldThen, func(s *State) { s.Balance++ })
			d.state(spentThen, func(s *State) { s.Balance-- })
		},
		[]string{
			"account s/sold/20261120: it has 20.000000001, its legs come to 20.00",
			"account s/spent/20261120: it has 17.999999999, its legs come to 18.00",
		},
	},
	{
		"a system account on which something is held",
		func(d damage) { d.state(soldThen, func(s *State) { s.Held++ }) },
		[]string{
			"account s/sold/20261120: 0.000000001 is held, and nothing is ever held on a system account",
			"account s/sold/20261120: it has 20.00 with 0.000000001 held, its legs come to 20.00",
		},
	},
	{
		"a system account that counts more legs than there are",
		func(d damage) { d.state(spentThen, func(s *State) { s.Entries++ }) },
		[]string{"account s/spent/20261120: its count of legs is 7, transfers have 6"},
	},
	{
		"a system account without a record",
		func(d damage) { d.remove(accountKey(soldThen)) },
		[]string{
			"all accounts: the sum of their balances is -20.00, not zero: money has come from nowhere or gone",
			"account s/sold/20261120: transfers change it, but it has no record",
		},
	},
	{
		"a system account without a record, and a number that none of its legs has",
		func(d damage) {
			d.remove(accountKey(operatorThen))
			d.transfer(creditID, func(x *Transfer) { x.Legs[0].Number = 3 })
		},
		[]string{
			"all accounts: the sum of their balances is 105.00, not zero: money has come from nowhere or gone",
			"account s/operator/20261120: transfers change it, but it has no record",
			"account s/operator/20261120: the numbers of its legs are not those from 1 to 2, each once: the greatest is 3",
		},
	},
	{
		"a system account without legs",
		func(d damage) { d.set(accountKey(Sold+"/20261121"), State{}.encode()) },
		[]string{"account s/sold/20261121: no transfer changes it"},
	},
	{
		"a system account that cannot be read",
		func(d damage) { d.set(accountKey(Sold+"/20261121"), []byte{9}) },
		[]string{"account s/sold/20261121: an account record of 1 bytes cannot be read by this build"},
	},
	{
		"an account that is neither of a user nor a system account",
		func(d damage) { d.set(accountKey("x"), State{Entries: 1}.encode()) },
		[]string{"account x: entry 1 is missing"},
	},
	{
		"a leg on the system accounts of another amount",
		func(d damage) {
			d.transfer(purchaseID, func(x *Transfer) { x.Legs[1].Amount++ })
		},
		[]string{
			fmt.Sprintf("transfer %v: the sum of its legs is 0.000000001, not zero", purchaseID),
			"account s/sold/20261120: it has 20.00, its legs come to 20.000000001",
		},
	},
	{
		"two legs on the system accounts that make up for each other",
		func(d damage) {
			d.transfer(purchaseID, func(x *Transfer) {
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
			d.transfer(creditID, func(x *Transfer) { x.Legs = x.Legs[1:] })
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
			d.transfer(creditID, func(x *Transfer) { x.Legs = append(x.Legs, x.Legs[0]) })
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
			d.transfer(refundID, func(x *Transfer) { x.Legs[2].Account = Paid("till") + "/20261120" })
		},
		[]string{
			"account s/paid/stripe/20261120: its count of legs is 1, transfers have 0",
			"account s/paid/stripe/20261120: it has 8.00, its legs come to 0.00",
			"account s/paid/till/20261120: transfers change it, but it has no record",
		},
	},
	{
		"a number that no leg on the system accounts has",
		func(d damage) { d.transfer(creditID, func(x *Transfer) { x.Legs[0].Number = 3 }) },
		[]string{"account s/operator/20261120: the numbers of its legs are not those from 1 to 2, each once: the greatest is 3"},
	},
	{
		"a number that two legs on the system accounts have",
		func(d damage) { d.transfer(creditID, func(x *Transfer) { x.Legs[0].Number = 2 }) },
		[]string{"account s/operator/20261120: the numbers of its legs are not those from 1 to 2, each once: the greatest is 2"},
	},
	{
		"an entry of the system accounts of another amount than its leg",
		func(d damage) {
			d.enterSystem(all)
			d.entry(soldThen, 1, func(e *Entry) { e.Amount -= money.Unit })
		},
		[]string{
			"account s/sold/20261120: its first entry began with 1.00",
			fmt.Sprintf("transfer %v: its leg on s/sold/20261120 is 20.00, entry 1 there is 19.00", purchaseID),
		},
	},
	{
		"an entry of the system accounts of another amount than its leg, where not all legs have one",
		func(d damage) {
			d.enterSystem(func(a Account, number uint64) bool { return a == operatorThen && number == 2 })
			d.entry(operatorThen, 2, func(e *Entry) { e.Amount -= money.Unit })
		},
		[]string{"transfer {credit of bob}: its leg on s/operator/20261120 is -5.00, entry 2 there is -6.00"},
	},
	{
		"an entry of the system accounts that does not lead to what its account has",
		func(d damage) {
			d.enterSystem(all)
			d.entry(operatorThen, 2, func(e *Entry) { e.After.Balance++ })
		},
		[]string{
			"account s/operator/20261120: it has -105.00, its last entry left -104.999999999",
			"account s/operator/20261120: entry 1 left -100.00, entry 2 began with -99.999999999",
		},
	},
	{
		"an entry of the system accounts of another time than its transfer",
		func(d damage) {
			d.enterSystem(all)
			d.entry(soldThen, 1, func(e *Entry) { e.Time = e.Time.Add(time.Hour) })
		},
		[]string{fmt.Sprintf("transfer %v: it is a purchase of 2026-11-20T12:06:00Z, entry 1 of s/sold/20261120 is a purchase of 2026-11-20T13:06:00Z", purchaseID)},
	},
	{
		"an entry of the system accounts that is of another transfer",
		func(d damage) {
			d.enterSystem(all)
			d.entry(operatorThen, 1, func(e *Entry) { e.Transfer = purchaseID })
		},
		[]string{
			fmt.Sprintf("transfer %v: its leg on s/operator/20261120 is entry 1 there, which is of transfer %v", creditID, purchaseID),
			fmt.Sprintf("account s/operator/20261120: entry 1 is of transfer %v, which has no such leg", purchaseID),
		},
	},
	{
		"an entry of the system accounts that has no leg any more",
		func(d damage) {
			d.enterSystem(all)
			d.remove(transferKey(creditID))
		},
		[]string{
			"account s/operator/20261120: its count of legs is 2, transfers have 1",
			"account s/operator/20261120: it has -105.00, its legs come to -5.00",
			fmt.Sprintf("account s/operator/20261120: entry 1 is of transfer %v, which is missing", creditID),
			fmt.Sprintf("account u/ann/wallet: entry 1 is of transfer %v, which is missing", creditID),
		},
	},
	{
		"an entry of the system accounts too many",
		func(d damage) {
			d.enterSystem(all)
			d.set(entryKey(soldThen, 2), d.get(entryKey(soldThen, 1)))
		},
		[]string{
			"account s/sold/20261120: entry 2 is there, but it counts only 1",
			"account s/sold/20261120: entry 1 left 20.00, entry 2 began with 0.00",
			fmt.Sprintf("account s/sold/20261120: entry 2 is of transfer %v, which has no such leg", purchaseID),
		},
	},
	{
		"a system account that has entries alone",
		func(d damage) {
			d.enterSystem(all)
			d.remove(accountKey(soldThen))
		},
		[]string{
			"account s/sold/20261120: it has entries, but no record",
			"all accounts: the sum of their balances is -20.00, not zero: money has come from nowhere or gone",
		},
	},
}

func TestVerifyFindsNothingInAnOlderStore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		has     func(a Account, number uint64) bool
		entries int64
		closer  bool // by a look at transfers one by one
	}{
		"that has entries of the system accounts throughout": {all, 36, false},
		"that has some until a moment of the day":            {func(_ Account, number uint64) bool { return number <= 2 }, 32, false},
		"that was written by old and new ones in turn":       {func(_ Account, number uint64) bool { return number%2 == 0 }, 29, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newHistory(t)
			before := f.verifyReads()
			f.change(func(tx storage.Txn) error {
				damage{tx, t}.enterSystem(test.has)
				return nil
			})
			if reads := f.verifyReads(); reads < before || (reads > before) != test.closer {
				t.Errorf("it read %d times, and %d times without entries of the system accounts", reads, before)
			}
			if report := f.verified(); report.Entries != test.entries {
				t.Errorf("it looked at %d entries, not at %d", report.Entries, test.entries)
			}
			f.credit("ann", money.Unit)
			if report := f.verified(); report.Entries != test.entries+1 {
				t.Errorf("after one more credit it looked at %d entries, not at %d", report.Entries, test.entries+1)
			}
		})
	}
}

// verifyReads returns how often Verify reads.
func (f *fixture) verifyReads() (reads int) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		_, err := Verify(f.t.Context(), watched{r, func() error {
			reads++
			return nil
		}}, f.clock.Now(), func(Problem) {})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return reads
}

// TestVerifyFindsEachChangeOfALegOnTheHouse changes each of them in each way by
// which it is another, in a store without entries of the system accounts and in an older
// one.
func TestVerifyFindsEachChangeOfALegOnTheHouse(t *testing.T) {
	t.Parallel()
	changes := map[string]func(x *Transfer, i int){
		"amount":       func(x *Transfer, i int) { x.Legs[i].Amount++ },
		"held":         func(x *Transfer, i int) { x.Legs[i].Held++ },
		"next number":  func(x *Transfer, i int) { x.Legs[i].Number++ },
		"no number":    func(x *Transfer, i int) { x.Legs[i].Number = 0 },
		"other family": func(x *Transfer, i int) { x.Legs[i].Account = "s/other/20261120" },
		"other day":    func(x *Transfer, i int) { x.Legs[i].Account = x.Legs[i].Account.Family() + "/20261119" },
		"gone":         func(x *Transfer, i int) { x.Legs = slices.Delete(x.Legs, i, i+1) },
		"twice":        func(x *Transfer, i int) { x.Legs = append(x.Legs, x.Legs[i]) },
	}
	for _, old := range []bool{false, true} {
		f := newHistory(t)
		var found []Transfer
		f.change(func(tx storage.Txn) error {
			d := damage{tx, t}
			d.enterSystem(func(Account, uint64) bool { return old })
			return eachTransfer(tx, func(_ []byte, x Transfer, err error) error {
				found = append(found, x)
				return err
			})
		})
		write := func(x Transfer) {
			f.change(func(tx storage.Txn) error { return storage.SetRecord(tx, transferKey(x.ID), x) })
		}
		tried := 0
		for _, x := range found {
			for i, leg := range x.Legs {
				if !leg.Account.system() {
					continue
				}
				for what, change := range changes {
					changed := x
					changed.Legs = slices.Clone(x.Legs)
					change(&changed, i)
					write(changed)
					if problems, _ := f.verify(); len(problems) == 0 {
						t.Errorf("%s of the leg on %s of %s (entries of the system accounts: %t): nothing was found", what, leg.Account, x.where(), old)
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
}
