package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// hold holds money for a call of a node, without the ledger.
func (f *fixture) hold(user string, number int64, parts ...journal.Leg) *journal.CallHold {
	f.t.Helper()
	h := &journal.CallHold{User: user, Epoch: 3, Number: number}
	f.change(func(t storage.Txn) error {
		h.Parts = nil
		return h.Change(t, parts)
	})
	return h
}

func TestReservedAmountsMatchTheHoldsOfCalls(t *testing.T) {
	t.Parallel()
	wallet := journal.Wallet("ann")
	budget := journal.BudgetAccount("ann", "user", 0)
	state := func(d damage, a journal.Account, change func(*journal.State)) {
		s, err := journal.DecodeState(d.get(journal.AccountKey(a)))
		if err != nil {
			d.t.Fatal(err)
		}
		change(&s)
		d.set(journal.AccountKey(a), s.Encode())
	}
	for name, c := range map[string]struct {
		damage func(damage, *journal.CallHold)
		want   []string
	}{
		"sound": {func(damage, *journal.CallHold) {}, nil},
		"a hold is lost": {
			func(d damage, h *journal.CallHold) { d.remove(h.StoreKey()) },
			[]string{
				"account u/ann/budget/user/0: 0.00000003 is reserved, but the holds of calls are 0.00",
				"account u/ann/wallet: 0.00000003 is reserved, but the holds of calls are 0.00",
			},
		},
		"a hold is doubled": {
			func(d damage, h *journal.CallHold) {
				again := *h
				again.Number++
				d.set(again.StoreKey(), d.get(h.StoreKey()))
			},
			[]string{"its record cannot be read: it is damaged, or belongs to another call"},
		},
		"more is reserved": {
			func(d damage, _ *journal.CallHold) { state(d, wallet, func(s *journal.State) { s.Reserved++ }) },
			[]string{"account u/ann/wallet: 0.000000031 is reserved, but the holds of calls are 0.00000003"},
		},
		"an account is lost": {
			func(d damage, _ *journal.CallHold) { d.remove(journal.AccountKey(budget)) },
			[]string{"account u/ann/budget/user/0: calls hold 0.00000003, but it has no record"},
		},
		"a wallet has less": {
			func(d damage, h *journal.CallHold) {
				if err := h.Change(d, []journal.Leg{{Account: wallet, Held: 71}}); err != nil {
					d.t.Fatal(err)
				}
			},
			[]string{"account u/ann/wallet: the holds of calls are 0.000000101, more than it has"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.credit("ann", 100)
			h := f.hold("ann", 1, journal.Leg{Account: wallet, Held: 30}, journal.Leg{Account: budget, Held: 30})
			f.checkVerified()
			f.change(func(tx storage.Txn) error {
				c.damage(damage{tx, t}, h)
				return nil
			})
			problems, _ := f.verify()
			slices.Sort(problems)
			if len(problems) != len(c.want) {
				t.Fatalf("Verify found %q, want %q", problems, c.want)
			}
			for i, want := range c.want {
				if !strings.HasSuffix(problems[i], want) {
					t.Errorf("Verify found %q, want %q", problems[i], want)
				}
			}
		})
	}
}
