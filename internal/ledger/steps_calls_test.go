package ledger

import (
	"errors"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// payers are the budgets of calls: none, that of the key, that of the user, or both.
var payers = [...]Budgets{
	{}, {},
	{{Scope: "key/1", Limit: 25, Reset: calendar.Day}},
	{{Scope: "user", Limit: 60, Reset: calendar.Week}},
	{{Scope: "key/1", Limit: 35, Reset: calendar.Day}, {Scope: "user", Limit: 50, Reset: calendar.Week}},
	{{Scope: "key/2", Limit: 20, Reset: calendar.Never}, {Scope: "user", Limit: 90, Reset: calendar.Week}},
}

// expectedRefusal returns the refusal that a reservation must get, or nil.
func (m *model) expectedRefusal(p Payer, amount money.Amount) *Shortfall {
	if amount == 0 {
		return nil
	}
	if owed := -m.balance[journal.Receivable(p.User)]; owed > 0 {
		return &Shortfall{Needed: amount, Owed: owed}
	}
	for _, b := range p.Budgets {
		if b.Limit > 0 {
			if left := m.budgetLeft(p.User, b); left < amount {
				return &Shortfall{Needed: amount, Available: left, Budget: b.Scope}
			}
		}
	}
	order := m.order(p.User)
	available := m.available(order...)
	if slices.Contains(order, today(p.User)) && !m.booked[opening(today(p.User)).ID] {
		available += dayQuota // the reservation opens the quota
	}
	if available < amount {
		return &Shortfall{Needed: amount, Available: available}
	}
	return nil
}

// budgetLeft returns the amount that may be spent under a budget.
func (m *model) budgetLeft(user string, b Budget) money.Amount {
	a := journal.BudgetAccount(user, b.Scope, b.Reset.Start(time.Now()).Unix())
	state := m.states()[a]
	return max(0, b.Limit+state.Balance-state.Held-m.reserved()[a])
}

// checkRefusal compares the result of a reservation with the expected one.
func (m *model) checkRefusal(want *Shortfall, err error) {
	var shortfall *Shortfall
	switch {
	case !errors.As(err, &shortfall):
		if err != nil || want != nil {
			m.failf("reserve returned %v, want %v", err, want)
		}
	case want == nil || *shortfall != *want:
		m.failf("reserve was refused with %+v, want %+v", shortfall, want)
	}
}

func (m *model) reserve(s step) {
	p := Payer{User: s.user, Budgets: payers[s.n]}
	c := &modelCall{Call: journal.Call{
		ID: m.id().String(), Time: time.Now().UnixMilli(), User: s.user, Key: "key_1", Model: "m", Usage: usage.Reported,
	}}
	predictable, want, order := m.isPredictable(), m.expectedRefusal(p, s.amount), m.order(s.user)
	m.run(func() func() {
		r, err := m.ledger.Reserve(background, p, s.amount)
		return func() {
			if predictable {
				m.noteOpenedQuotas()
				m.checkRefusal(want, err)
				if id := opening(today(s.user)).ID; s.amount > 0 && slices.Contains(order, today(s.user)) && !m.booked[id] {
					m.failf("the quota of %s for this day has not been opened", s.user)
				}
			}
			if err != nil {
				return
			}
			c.reservation = r
			for _, budgetUsage := range r.caps {
				c.under = append(c.under, budgetUsage.account)
			}
			if predictable {
				m.checkOrder(r, order)
			}
			m.calls = append(m.calls, c)
		}
	})
}

// checkOrder checks that a new reservation takes from the accounts in their order,
// and exhausts each before the next.
func (m *model) checkOrder(r *Reservation, order []journal.Account) {
	left := r.amount
	parts := r.parts
	for _, a := range order {
		if take := min(left, m.available(a)); take > 0 {
			if len(parts) == 0 || parts[0].source.account != a || parts[0].amount != take {
				m.failf("of the reservation of %d, %d must be from %s; the parts are %v", r.amount, take, a, r.parts)
				return
			}
			parts, left = parts[1:], left-take
		}
	}
	if len(parts) > 0 || left > 0 {
		m.failf("the parts of a reservation of %d do not match: %v", r.amount, r.parts)
	}
}

// openCall picks an open call, or nil if there is none.
func (m *model) openCall(n int, fits func(*modelCall) bool) *modelCall {
	var open []*modelCall
	for _, c := range m.calls {
		if !c.over && fits(c) {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[n%len(open)]
}

func anyCall(*modelCall) bool        { return true }
func (c *modelCall) unsettled() bool { return len(c.paid) == 0 }

func (m *model) grow(s step) {
	c := m.openCall(s.n, anyCall)
	if c == nil {
		return
	}
	// The budgets bound the growth, even while steps are pending.
	most := s.amount
	for _, budgetUsage := range c.reservation.caps {
		state := m.states()[budgetUsage.account]
		most = min(most, max(0, budgetUsage.limit+state.Balance-state.Held-m.reserved()[budgetUsage.account]))
	}
	before := c.reservation.Amount()
	got, _ := c.reservation.Grow(s.amount)
	if got > most || c.reservation.Amount() != before+got {
		m.failf("grow by %d gave %d; the budgets allow %d", s.amount, got, most)
	}
	if p := c.reservation.balances; m.isPredictable() && p != nil && p.fresh(time.Now()) {
		if want := min(most, m.available(m.order(c.User)...)+got); m.balance[journal.Receivable(c.User)] == 0 && got != want {
			m.failf("grow by %d gave %d, want %d", s.amount, got, want)
		}
	}
}

func (m *model) interim(s step) {
	if c := m.openCall(s.n, anyCall); c != nil {
		m.charge(c, s.amount, "")
	}
}

func (m *model) final(s step) {
	if c := m.openCall(s.n, anyCall); c != nil {
		m.charge(c, s.amount, usage.Complete)
	}
}

// charge settles a call.
func (m *model) charge(c *modelCall, cost money.Amount, ended usage.Ended) {
	c.ended, c.over = ended, ended != ""
	call := c.Call
	call.Ended = ended
	call.Tokens = usage.Tokens{Input: int64(len(c.paid)), Output: int64(cost)}
	want := min(cost, c.reservation.Amount())
	charged := c.reservation.Settle(call, cost, c.over)
	paid := make(map[journal.Account]money.Amount)
	for _, part := range c.reservation.parts {
		paid[part.source.account] += part.charged
	}
	c.paid = append(c.paid, paid)
	if _, sum := c.total(); charged != want || sum != want {
		m.failf("call %s was charged %d, its parts %d, want %d", c.ID, charged, sum, want)
	}
}

func (m *model) release(s step) {
	if c := m.openCall(s.n, (*modelCall).unsettled); c != nil {
		c.reservation.Release()
		c.over = true
	}
}

func (m *model) hold(s step) {
	p := Payer{User: s.user, Budgets: payers[s.n]}
	amount, ledger := s.amount+1, m.ledger
	x := journal.Transfer{ID: m.id(), Kind: journal.Hold, User: s.user}
	predictable, want := m.isPredictable(), m.expectedRefusal(p, amount)
	m.run(func() func() {
		r, err := ledger.Reserve(background, p, amount)
		if err != nil {
			return func() {
				if predictable {
					m.checkRefusal(want, err)
				}
			}
		}
		for _, part := range r.parts {
			x.Legs = append(x.Legs, journal.Leg{Account: part.source.account, Held: part.amount})
		}
		for _, budgetUsage := range r.caps {
			x.Legs = append(x.Legs, journal.Leg{Account: budgetUsage.account, Held: r.amount})
		}
		err = ledger.Update(background, s.user, r, func(t *Txn) error {
			return r.Hold(t, m.store.Now(), s.user, x.ID, "task")
		})
		return func() {
			if m.noteTransfer("a hold", err, x) {
				m.holds = append(m.holds, &modelHold{id: x.ID, user: s.user, parts: x.Legs})
			}
		}
	})
}

// endHold ends a hold, which may have ended before.
func (m *model) endHold(s step) {
	if len(m.holds) == 0 {
		return
	}
	h := m.holds[s.n%len(m.holds)]
	h.costs = append(h.costs, s.amount)
	m.run(func() func() {
		var charged money.Amount
		err := m.ledger.Update(background, h.user, nil, func(t *Txn) (err error) {
			charged, err = journal.EndHold(t, m.store.Now(), h.usage(), h.id, s.amount)
			return err
		})
		return func() { m.holdEnded(h, charged, err) }
	})
}

func (m *model) holdEnded(h *modelHold, charged money.Amount, err error) {
	var record journal.HoldRecord
	m.view(func(r storage.Reader) error {
		_, err := storage.GetRecord(r, journal.HoldKey(h.user, h.id), &record)
		return err
	})
	if err == nil && charged != record.Charged {
		m.failf("the end of a hold charged %d; the store has %d", charged, record.Charged)
	}
	x := journal.Transfer{ID: journal.EndOf(h.id)}
	var held money.Amount
	for _, part := range h.parts {
		if !part.Account.Memo() {
			held += part.Held
		}
	}
	// The money is taken from the parts in their order, and counts under budgets.
	left, expected := record.Charged, false
	for _, part := range h.parts {
		paid := record.Charged
		if !part.Account.Memo() {
			paid = min(left, part.Held)
			left -= paid
		}
		x.Legs = append(x.Legs, journal.Leg{Account: part.Account, Amount: -paid, Held: -part.Held})
	}
	for _, cost := range h.costs {
		expected = expected || min(cost, held) == record.Charged
	}
	if m.noteTransfer("the end of a hold", err, x) && !h.ended {
		h.ended = true
		if !expected {
			m.failf("a hold of %d was charged %d; the costs were %v", held, record.Charged, h.costs)
		}
	}
}
