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

// states returns the expected states of the accounts of users.
func (m *model) states() map[journal.Account]journal.State {
	states := make(map[journal.Account]journal.State)
	change := func(a journal.Account, balance, held money.Amount) {
		if a.Owner() != "" {
			s := states[a]
			states[a] = journal.State{Balance: s.Balance + balance, Held: s.Held + held}
		}
	}
	for a, amount := range m.balance {
		change(a, amount, 0)
	}
	for a, amount := range m.held {
		change(a, 0, amount)
	}
	for _, c := range m.calls {
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

// reserved returns the reserved and uncharged amounts of open calls, by account.
func (m *model) reserved() map[journal.Account]money.Amount {
	reserved := make(map[journal.Account]money.Amount)
	for _, c := range m.calls {
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

// available returns the amount that may be spent from accounts.
func (m *model) available(accounts ...journal.Account) (sum money.Amount) {
	states, reserved := m.states(), m.reserved()
	for _, a := range accounts {
		sum += states[a].Available() - reserved[a]
	}
	return sum
}

func (m *model) order(user string) []journal.Account {
	return orders[m.orders[user]](user, calendar.Day.Start(time.Now()))
}

// check compares the ledger and its store with the model.
func (m *model) check() {
	m.checkAccounts()
	m.checkCalls()
	m.checkUsage()
	m.checkBalances()
	open, reserved := int64(0), money.Amount(0)
	for _, c := range m.calls {
		if !c.over && c.reservation.balances != nil {
			open++
			reserved += c.reservation.amount - c.reservation.charged
		}
	}
	stats := m.ledger.Stats()
	stats.CachedUsers = 0
	if want := (Stats{Open: open, Reserved: reserved}); stats != want {
		m.failf("the stats are %+v, want %+v", stats, want)
	}
	var problems []string
	m.view(func(r storage.Reader) error {
		_, err := verify.Verify(context.Background(), r, time.Now(), func(p verify.Problem) {
			problems = append(problems, p.Where+": "+p.What)
		})
		return err
	})
	if len(problems) > 0 {
		m.failf("Verify found:\n%s", strings.Join(problems, "\n"))
	}
}

func (m *model) checkAccounts() {
	want := m.states()
	m.view(func(r storage.Reader) error {
		for a, s := range want {
			have, err := journal.ReadState(r, a)
			if err != nil {
				return err
			}
			if have.Entries = 0; have != s {
				m.failf("account %s has %d with %d held, want %d with %d held", a, have.Balance, have.Held, s.Balance, s.Held)
			}
			if a.NonNegative() && have.Available() < 0 {
				m.failf("account %s has %d available", a, have.Available())
			}
		}
		return r.Scan(journal.AccountKey("u/"), storage.PrefixEnd(journal.AccountKey("u/")), func(key, _ []byte) bool {
			if _, known := want[journal.Account(key[len(journal.AccountPrefix):])]; !known {
				m.failf("%s exists, but no step has changed it", key)
			}
			return true
		})
	})
}

func (m *model) checkCalls() {
	for _, c := range m.calls {
		record := m.record(c)
		_, sum := c.total()
		switch {
		case record.Number != len(c.paid):
			m.failf("call %s has %d settlements in the store, want %d", c.ID, record.Number, len(c.paid))
		case record.Cost != sum:
			m.failf("call %s costs %d in the store, but was charged %d", c.ID, record.Cost, sum)
		case record.Number > 0 && record.Ended != c.ended:
			m.failf("call %s has ended as %q in the store, want %q", c.ID, record.Ended, c.ended)
		}
		c.durable = record.Number
	}
}

// checkUsage checks that the usage of all days equals the amounts that the system
// accounts received for calls and tasks.
func (m *model) checkUsage() {
	var spent money.Amount
	tasks := int64(0)
	m.view(func(r storage.Reader) error {
		return errors.Join(
			r.Scan(journal.AccountKey(journal.Spent), storage.PrefixEnd(journal.AccountKey(journal.Spent)), func(_, val []byte) bool {
				state, err := journal.DecodeState(val)
				if err != nil {
					m.failf("an account of family %s: %v", journal.Spent, err)
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
		m.failf("the spent amounts differ by %d from the usage of all days, the tasks by %d", spent, tasks)
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

// checkBalances compares the balance cache with the store.
func (m *model) checkBalances() {
	reserved := m.reserved()
	for _, user := range []string{"ann", "bob"} {
		p := m.ledger.balanceCache.find(user)
		if p == nil || !p.loaded {
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		m.view(func(r storage.Reader) error {
			for a, source := range p.sources {
				state, err := journal.ReadState(r, a)
				if err != nil {
					return err
				}
				if source.reserved != reserved[a] {
					m.failf("the balances of %s have %d reserved of %s, want %d", user, source.reserved, a, reserved[a])
				}
				if source.durable != state.Available() {
					m.failf("the balances of %s have %d of %s, the store has %d", user, source.durable, a, state.Available())
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
					m.failf("the balances of %s count %d and %d reserved on %s, want %d and %d",
						user, budgetUsage.used, budgetUsage.reserved, budgetUsage.account, used, reserved[budgetUsage.account])
				}
			}
			return nil
		})
	}
}
