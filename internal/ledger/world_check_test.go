package ledger

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/ledger/verify"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// states is what the accounts of users must have.
func (w *world) states() map[journal.Account]journal.State {
	states := make(map[journal.Account]journal.State)
	change := func(a journal.Account, balance, held money.Amount) {
		if a.Owner() != "" {
			s := states[a]
			states[a] = journal.State{Balance: s.Balance + balance, Held: s.Held + held}
		}
	}
	for a, amount := range w.balance {
		change(a, amount, 0)
	}
	for a, amount := range w.held {
		change(a, 0, amount)
	}
	for _, c := range w.calls {
		paid, sum := c.total()
		for a, amount := range paid {
			change(a, -amount, 0)
		}
		for _, a := range c.under {
			change(a, -sum, 0)
		}
	}
	return states
}

// reserved is what open calls have reserved and not been charged, by account.
func (w *world) reserved() map[journal.Account]money.Amount {
	reserved := make(map[journal.Account]money.Amount)
	for _, c := range w.calls {
		if c.over {
			continue
		}
		for _, part := range c.reservation.parts {
			reserved[part.source.account] += part.amount - part.charged
		}
		for _, a := range c.under {
			reserved[a] += c.reservation.amount - c.reservation.charged
		}
	}
	return reserved
}

// available is what may be spent of accounts.
func (w *world) available(accounts ...journal.Account) (sum money.Amount) {
	states, reserved := w.states(), w.reserved()
	for _, a := range accounts {
		sum += states[a].Available() - reserved[a]
	}
	return sum
}

func (w *world) order(user string) []journal.Account {
	return orders[w.orders[user]](user, calendar.Day.Start(time.Now()))
}

// check holds everything against what must be.
func (w *world) check() {
	w.checkAccounts()
	w.checkCalls()
	w.checkUsage()
	w.checkBalances()
	open, reserved := int64(0), money.Amount(0)
	for _, c := range w.calls {
		if !c.over && c.reservation.balances != nil {
			open++
			reserved += c.reservation.amount - c.reservation.charged
		}
	}
	stats := w.ledger.Stats()
	stats.CachedUsers = 0
	if want := (Stats{Open: open, Reserved: reserved}); stats != want {
		w.failf("the figures are %+v, not %+v", stats, want)
	}
	var problems []string
	w.view(func(r storage.Reader) error {
		_, err := verify.Verify(context.Background(), r, time.Now(), func(p verify.Problem) {
			problems = append(problems, p.Where+": "+p.What)
		})
		return err
	})
	if len(problems) > 0 {
		w.failf("Verify found:\n%s", strings.Join(problems, "\n"))
	}
}

func (w *world) checkAccounts() {
	want := w.states()
	w.view(func(r storage.Reader) error {
		for a, s := range want {
			have, err := journal.ReadState(r, a)
			if err != nil {
				return err
			}
			if have.Entries = 0; have != s {
				w.failf("account %s has %d with %d held, not %d with %d", a, have.Balance, have.Held, s.Balance, s.Held)
			}
			if a.Kept() && have.Available() < 0 {
				w.failf("account %s has %d available", a, have.Available())
			}
		}
		return r.Scan(journal.AccountKey("u/"), storage.PrefixEnd(journal.AccountKey("u/")), func(key, _ []byte) bool {
			if _, known := want[journal.Account(key[len(journal.AccountPrefix):])]; !known {
				w.failf("%s is there, and nothing was done that concerns it", key)
			}
			return true
		})
	})
}

func (w *world) checkCalls() {
	for _, c := range w.calls {
		record := w.record(c)
		_, sum := c.total()
		switch {
		case record.Number != len(c.paid):
			w.failf("call %s has %d settlements in the store, %d were made", c.ID, record.Number, len(c.paid))
		case record.Cost != sum:
			w.failf("call %s has cost %d in the store, it was charged %d", c.ID, record.Cost, sum)
		case record.Number > 0 && record.Ended != c.ended:
			w.failf("call %s has ended as %q in the store, not as %q", c.ID, record.Ended, c.ended)
		}
		c.durable = record.Number
	}
}

// checkUsage looks whether the usage of all days comes to what the system accounts have had
// for calls and tasks.
func (w *world) checkUsage() {
	var spent money.Amount
	tasks := int64(0)
	w.view(func(r storage.Reader) error {
		return errors.Join(
			r.Scan(journal.AccountKey(journal.Spent), storage.PrefixEnd(journal.AccountKey(journal.Spent)), func(_, val []byte) bool {
				state, err := journal.DecodeState(val)
				if err != nil {
					w.failf("an account of what was spent: %v", err)
				}
				spent += state.Balance
				return true
			}),
			each(&journal.Usages, r, func(u *journal.Usage) {
				spent -= u.Cost
				tasks += u.Tasks
			}),
			each(&journal.Holds, r, func(h *journal.HoldRecord) {
				if h.State == journal.Settled {
					tasks--
				}
			}),
		)
	})
	if spent != 0 || tasks != 0 {
		w.failf("what was spent differs by %d from the usage of all days, and the tasks by %d", spent, tasks)
	}
}

// each calls fn for all records of a table.
func each[R any](t *table.Table[R], r storage.Reader, fn func(*R)) error {
	for rec, err := range t.Scan(r, t.Under()) {
		if err != nil {
			return err
		}
		fn(rec)
	}
	return nil
}

// checkBalances looks whether what stands in memory is what the store has.
func (w *world) checkBalances() {
	reserved := w.reserved()
	for _, user := range []string{"ann", "bob"} {
		p := w.ledger.balanceCache.find(user)
		if p == nil || !p.loaded {
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		w.view(func(r storage.Reader) error {
			for a, source := range p.sources {
				state, err := journal.ReadState(r, a)
				if err != nil {
					return err
				}
				if source.reserved != reserved[a] {
					w.failf("the balances of %s has %d reserved of %s, not %d", user, source.reserved, a, reserved[a])
				}
				if source.durable != state.Available() {
					w.failf("the balances of %s has %d of %s, the store has %d", user, source.durable, a, state.Available())
				}
			}
			for _, budgetUsage := range p.caps {
				if !budgetUsage.known {
					continue
				}
				state, err := journal.ReadState(r, budgetUsage.account)
				if err != nil {
					return err
				}
				if used := state.Held - state.Balance; budgetUsage.used != used || budgetUsage.reserved != reserved[budgetUsage.account] {
					w.failf("the balances of %s counts %d and %d reserved on %s, not %d and %d",
						user, budgetUsage.used, budgetUsage.reserved, budgetUsage.account, used, reserved[budgetUsage.account])
				}
			}
			return nil
		})
	}
}
