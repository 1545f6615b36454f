package ledger

import (
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// view reads the store, past all nodes.
func (m *clusterModel) view(fn func(storage.Reader) error) {
	if err := m.open().View(background, fn); err != nil {
		m.failf("view: %v", err)
	}
}

// check compares the store with the steps so far. Each commit was verified already.
func (m *clusterModel) check() {
	balance, promised := map[string]money.Amount{}, map[string]money.Amount{}
	m.view(func(r storage.Reader) error {
		if err := m.checkTransfers(r, balance); err != nil {
			return err
		}
		for _, c := range m.calls {
			record, err := m.checkCall(r, c)
			if err != nil {
				return err
			}
			balance[c.User] -= record.Cost
			if !c.closed && (!c.over || c.durable < len(c.paid)) && c.node.store.Err() == nil && slices.Contains(m.present[:], c.node) {
				promised[c.User] += c.reservation.amount - record.Cost
			}
		}
		for _, user := range clusterUsers {
			s, err := journal.ReadState(r, journal.Wallet(user))
			if err != nil {
				return err
			}
			if s.Balance != balance[user] || s.Available() < 0 {
				m.failf("the wallet of %s has %d with %d reserved; the transfers and calls leave %d", user, s.Balance, s.Reserved, balance[user])
			}
			if s.Balance < promised[user] {
				m.failf("the wallet of %s has %d, and %d of it are promised to open calls", user, s.Balance, promised[user])
			}
		}
		return m.checkBudgets(r)
	})
	for _, n := range m.nodes {
		if n.Stats().Mismatches != 0 {
			m.failf("a call was promised money that its wallet did not have in the end")
		}
	}
}

// checkTransfers adds the transfers that have happened to the balances.
func (m *clusterModel) checkTransfers(r storage.Reader, balance map[string]money.Amount) error {
	happened, acknowledged := map[string]int{}, map[string]bool{}
	for _, x := range m.transfers {
		have, found, err := journal.ReadTransfer(r, x.ID)
		if err != nil {
			return err
		}
		switch {
		case x.seen && !found:
			m.failf("a %s was in the store and is gone", x.Kind)
		case x.told == done && !found && x.once == "" && x.Kind != journal.Refund:
			m.failf("a %s was acknowledged and did not happen", x.Kind)
		case x.told == failed && found:
			m.failf("a %s was told as failed and has happened", x.Kind)
		}
		if x.seen = found; found {
			for _, leg := range have.Legs {
				if leg.Account == journal.Wallet(x.User) {
					balance[x.User] += leg.Amount
				}
			}
		}
		if x.once != "" && found {
			happened[x.once]++
		}
		if x.once != "" && x.told == done {
			acknowledged[x.once] = true
		}
	}
	for key, n := range happened {
		if n > 1 {
			m.failf("the purchase %s was paid %d times", key, n)
		}
	}
	for key := range acknowledged {
		if happened[key] == 0 {
			m.failf("the purchase %s was acknowledged and did not happen", key)
		}
	}
	return nil
}

// checkCall compares the record of a call with its settlements. After the end of its epoch the record
// stays as it is.
func (m *clusterModel) checkCall(r storage.Reader, c *clusterCall) (record journal.CallRecord, err error) {
	if record, _, err = journal.ReadCall(r, c.StoreKey(journal.CallPrefix)); err != nil {
		return record, err
	}
	switch {
	case record.Number < c.durable || record.Number > len(c.paid):
		m.failf("call %s has %d settlements in the store, want %d to %d", c.ID, record.Number, c.durable, len(c.paid))
		return record, nil
	case c.closed && record.Number != c.durable:
		m.failf("call %s was charged after its epoch had ended", c.ID)
	case c.mustBeKept && record.Number != len(c.paid):
		m.failf("call %s has lost settlements although its node has left in order", c.ID)
	}
	want := money.Amount(0)
	if record.Number > 0 {
		want = c.paid[record.Number-1]
	}
	if record.Cost != want {
		m.failf("call %s cost %d after %d settlements, want %d", c.ID, record.Cost, record.Number, want)
	}
	c.durable = record.Number
	ended, err := storage.HasEnded(r, m.epochs[c.node])
	c.closed = c.closed || ended
	if record.Ended == journal.Crashed && !ended {
		m.failf("call %s was closed as crashed while its node lives", c.ID)
	}
	return record, err
}

// checkBudgets checks that no budget of payers is exceeded.
func (m *clusterModel) checkBudgets(r storage.Reader) error {
	for _, user := range clusterUsers {
		highest := map[journal.Account]money.Amount{}
		for _, budgets := range payers {
			for _, b := range budgets {
				if b.Limit > 0 {
					key := b.key(m.nodes[0].store.Now())
					a := journal.BudgetAccount(user, key.scope, key.start)
					highest[a] = max(highest[a], b.Limit)
				}
			}
		}
		for a, limit := range highest {
			s, err := journal.ReadState(r, a)
			if err != nil {
				return err
			}
			if s.Used() > limit {
				m.failf("the budget %s is %d, and %d are used", a, limit, s.Used())
			}
		}
	}
	return nil
}

// checkEnd checks the store after all calls have ended, and all epochs without a node are cleared up.
func (m *clusterModel) checkEnd() {
	m.view(func(r storage.Reader) error {
		if err := journal.ScanCallHolds(r, "", func(h journal.CallHold) bool {
			m.failf("the hold %+v is left", h)
			return true
		}); err != nil {
			return err
		}
		for _, c := range m.calls {
			record, _, err := journal.ReadCall(r, c.StoreKey(journal.CallPrefix))
			if err != nil {
				return err
			}
			switch complete := c.over && record.Number == len(c.paid); {
			case record.Number == 0 && (c.closed || len(c.paid) == 0):
			case complete && record.Ended == usage.Complete:
			case c.closed && record.Ended == journal.Crashed:
			default:
				m.failf("call %s ended as %q with %d of %d settlements", c.ID, record.Ended, record.Number, len(c.paid))
			}
		}
		return nil
	})
	for _, user := range clusterUsers {
		if s := m.wallet(user); s.Reserved != 0 {
			m.failf("%d of the wallet of %s are reserved at the end", s.Reserved, user)
		}
	}
	for i, n := range m.present {
		s := n.Stats()
		if s.CachedUsers = 0; s != (Stats{}) || n.store.Err() != nil {
			m.failf("node %d has %+v at the end, and its store %v", i, s, n.store.Err())
		}
	}
}
