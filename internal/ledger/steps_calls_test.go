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

// payers are who calls are made by: under no budget, that of the key, that of
// the user, or both.
var payers = [...]Budgets{
	{}, {},
	{{Scope: "key/1", Limit: 25, Reset: calendar.Day}},
	{{Scope: "user", Limit: 60, Reset: calendar.Week}},
	{{Scope: "key/1", Limit: 35, Reset: calendar.Day}, {Scope: "user", Limit: 50, Reset: calendar.Week}},
	{{Scope: "key/2", Limit: 20, Reset: calendar.Never}, {Scope: "user", Limit: 90, Reset: calendar.Week}},
}

// verdict is what must come of reserving: nil, or why not.
func (w *world) verdict(p Payer, amount money.Amount) *Short {
	if amount == 0 {
		return nil
	}
	if owed := -w.balance[journal.Receivable(p.User)]; owed > 0 {
		return &Short{Needed: amount, Owed: owed}
	}
	for _, b := range p.Budgets {
		if b.Limit > 0 {
			if left := w.left(p.User, b); left < amount {
				return &Short{Needed: amount, Available: left, Budget: b.Scope}
			}
		}
	}
	order := w.order(p.User)
	available := w.available(order...)
	if slices.Contains(order, today(p.User)) && !w.booked[opening(today(p.User)).ID] {
		available += dayQuota // for this will open it
	}
	if available < amount {
		return &Short{Needed: amount, Available: available}
	}
	return nil
}

// left is what may be spent under a budget.
func (w *world) left(user string, b Budget) money.Amount {
	a := journal.BudgetAccount(user, b.Scope, b.Reset.Start(time.Now()).Unix())
	state := w.states()[a]
	return max(0, b.Limit+state.Balance-state.Held-w.reserved()[a])
}

// judge holds what came of reserving against what must have.
func (w *world) judge(want *Short, err error) {
	var short *Short
	switch {
	case !errors.As(err, &short):
		if err != nil || want != nil {
			w.failf("reserving came to %v, not to %v", err, want)
		}
	case want == nil || *short != *want:
		w.failf("reserving was refused: %+v, not %+v", short, want)
	}
}

func (w *world) reserve(s step) {
	p := Payer{User: s.user, Budgets: payers[s.n]}
	c := &madeCall{Call: journal.Call{
		ID: w.id().String(), Time: time.Now().UnixMilli(), User: s.user, Key: "key_1", Model: "m", Usage: usage.Reported,
	}}
	calm, want, order := w.calm(), w.verdict(p, s.amount), w.order(s.user)
	w.run(func() func() {
		r, err := w.ledger.Reserve(background, p, s.amount)
		return func() {
			if calm {
				w.openings()
				w.judge(want, err)
				if id := opening(today(s.user)).ID; s.amount > 0 && slices.Contains(order, today(s.user)) && !w.booked[id] {
					w.failf("the quota of %s for this day has not been opened", s.user)
				}
			}
			if err != nil {
				return
			}
			c.reservation = r
			for _, budgetUsage := range r.caps {
				c.under = append(c.under, budgetUsage.account)
			}
			if calm {
				w.inOrder(r, order)
			}
			w.calls = append(w.calls, c)
		}
	})
}

// inOrder looks whether a new reservation is from the accounts in their order,
// each exhausted before the next.
func (w *world) inOrder(r *Reservation, order []journal.Account) {
	left := r.amount
	parts := r.parts
	for _, a := range order {
		if take := min(left, w.available(a)); take > 0 {
			if len(parts) == 0 || parts[0].source.account != a || parts[0].amount != take {
				w.failf("of %d, %d must be from %s; the parts are %v", r.amount, take, a, r.parts)
				return
			}
			parts, left = parts[1:], left-take
		}
	}
	if len(parts) > 0 || left > 0 {
		w.failf("%d is reserved from nowhere: %v", r.amount, r.parts)
	}
}

// openCall picks a call under way, nil when there is none.
func (w *world) openCall(n int, fits func(*madeCall) bool) *madeCall {
	var open []*madeCall
	for _, c := range w.calls {
		if !c.over && fits(c) {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[n%len(open)]
}

func anyCall(*madeCall) bool        { return true }
func (c *madeCall) unsettled() bool { return len(c.paid) == 0 }

func (w *world) grow(s step) {
	c := w.openCall(s.n, anyCall)
	if c == nil {
		return
	}
	// What the budgets have left bounds it, however much is under way.
	most := s.amount
	for _, budgetUsage := range c.reservation.caps {
		state := w.states()[budgetUsage.account]
		most = min(most, max(0, budgetUsage.limit+state.Balance-state.Held-w.reserved()[budgetUsage.account]))
	}
	before := c.reservation.Amount()
	got, _ := c.reservation.Grow(s.amount)
	if got > most || c.reservation.Amount() != before+got {
		w.failf("growing by %d, of which budgets had %d, came to %d more", s.amount, most, got)
	}
	if p := c.reservation.balances; w.calm() && p != nil && p.fresh(time.Now()) {
		if want := min(most, w.available(w.order(c.User)...)+got); w.balance[journal.Receivable(c.User)] == 0 && got != want {
			w.failf("growing by %d came to %d, not to %d", s.amount, got, want)
		}
	}
}

func (w *world) interim(s step) {
	if c := w.openCall(s.n, anyCall); c != nil {
		w.charge(c, s.amount, "")
	}
}

func (w *world) final(s step) {
	if c := w.openCall(s.n, anyCall); c != nil {
		w.charge(c, s.amount, usage.Complete)
	}
}

// charge settles a call.
func (w *world) charge(c *madeCall, cost money.Amount, ended usage.Ended) {
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
		w.failf("call %s was charged %d, from its parts %d, not %d", c.ID, charged, sum, want)
	}
}

func (w *world) release(s step) {
	if c := w.openCall(s.n, (*madeCall).unsettled); c != nil {
		c.reservation.Release()
		c.over = true
	}
}

func (w *world) hold(s step) {
	p := Payer{User: s.user, Budgets: payers[s.n]}
	amount, ledger := s.amount+1, w.ledger
	x := journal.Transfer{ID: w.id(), Kind: journal.Hold, User: s.user}
	calm, want := w.calm(), w.verdict(p, amount)
	w.run(func() func() {
		r, err := ledger.Reserve(background, p, amount)
		if err != nil {
			return func() {
				if calm {
					w.judge(want, err)
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
			return r.Hold(t, w.store.Now(), s.user, x.ID, "task")
		})
		return func() {
			if w.came("a hold", err, x) {
				w.holds = append(w.holds, &madeHold{id: x.ID, user: s.user, parts: x.Legs})
			}
		}
	})
}

// endHold ends a hold, also one that has ended.
func (w *world) endHold(s step) {
	if len(w.holds) == 0 {
		return
	}
	h := w.holds[s.n%len(w.holds)]
	h.costs = append(h.costs, s.amount)
	w.run(func() func() {
		var charged money.Amount
		err := w.ledger.Update(background, h.user, nil, func(t *Txn) (err error) {
			charged, err = journal.EndHold(t, w.store.Now(), h.usage(), h.id, s.amount)
			return err
		})
		return func() { w.holdEnded(h, charged, err) }
	})
}

func (w *world) holdEnded(h *madeHold, charged money.Amount, err error) {
	var record journal.HoldRecord
	w.view(func(r storage.Reader) error {
		_, err := storage.GetRecord(r, journal.HoldKey(h.user, h.id), &record)
		return err
	})
	if err == nil && charged != record.Charged {
		w.failf("ending a hold came to %d, it has come to %d", charged, record.Charged)
	}
	x := journal.Transfer{ID: journal.EndOf(h.id)}
	var held money.Amount
	for _, part := range h.parts {
		if !part.Account.Memo() {
			held += part.Held
		}
	}
	// The money is taken from the parts in their order, and counts under budgets.
	left, meant := record.Charged, false
	for _, part := range h.parts {
		pays := record.Charged
		if !part.Account.Memo() {
			pays = min(left, part.Held)
			left -= pays
		}
		x.Legs = append(x.Legs, journal.Leg{Account: part.Account, Amount: -pays, Held: -part.Held})
	}
	for _, cost := range h.costs {
		meant = meant || min(cost, held) == record.Charged
	}
	if w.came("the end of a hold", err, x) && !h.ended {
		h.ended = true
		if !meant {
			w.failf("a hold of %d was charged %d, asked for were %v", held, record.Charged, h.costs)
		}
	}
}
