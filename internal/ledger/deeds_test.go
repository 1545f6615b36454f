package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
)

// The steps that a world may take, by the names of deeds.

var background = context.Background()

func (w *world) id() ID {
	w.ids++
	return IDOf("step", fmt.Sprint(w.ids))
}

// transact books a transfer by an Update.
func (w *world) transact(what string, x Transfer) {
	w.run(func() func() {
		err := w.ledger.Update(background, x.User, nil, booking(w.store, x))
		return func() { w.came(what, err, x) }
	})
}

func booking(s *storage.Store, x Transfer) func(storage.Txn) error {
	return func(t storage.Txn) error {
		_, err := Book(t, s.Now(), x)
		return err
	}
}

func (w *world) credit(s step) {
	w.transact("a credit", Transfer{ID: w.id(), Kind: Credit, User: s.user, Legs: Move(Operator, Wallet(s.user), s.amount)})
}

// grant fills one of two quotas, that of today or the one that never ends.
func (w *world) grant(s step) {
	quota := Quota(s.user, 1, calendar.Day.Start(time.Now()))
	if s.n%2 == 1 {
		quota = Quota(s.user, 2, time.Unix(0, 0))
	}
	w.transact("a grant", Transfer{ID: w.id(), Kind: Grant, User: s.user, Legs: Move(Granted, quota, s.amount)})
}

// purchase buys something once.
func (w *world) purchase(s step) {
	price, ledger := s.amount+1, w.ledger
	c := Claim{Scope: s.user, Key: fmt.Sprint("k", s.n%3), Fingerprint: IDOf(price.String())}
	x := Transfer{ID: IDOf("purchase", s.user, c.Key), Kind: Purchase, User: s.user, Legs: Move(Wallet(s.user), Sold, price)}
	if w.claiming[string(c.key())] {
		return // it would wait for a mutex, which is not seen as waiting in a bubble
	}
	w.claiming[string(c.key())] = true
	calm, enough := w.calm(), w.available(Wallet(s.user)) >= price && w.balance[Receivable(s.user)] == 0
	w.run(func() func() {
		result, replayed, err := ledger.Once(background, s.user, c, func() (*Reservation, error) {
			return ledger.ReserveWallet(background, s.user, price)
		}, func(t storage.Txn) (any, error) {
			return price, booking(w.store, x)(t)
		})
		return func() {
			var have claimRecord
			w.view(func(r storage.Reader) error {
				_, err := storage.GetRecord(r, c.key(), &have)
				return err
			})
			var short *Short
			var f *fault.Fault
			switch {
			case errors.As(err, &short):
				if calm && (enough || w.booked[x.ID]) {
					w.failf("a purchase for %d was refused: %v", price, err)
				}
			case errors.As(err, &f) && f.Code == fault.IdempotencyKeyReused:
				if have.By == (ID{}) || have.Fingerprint == c.Fingerprint {
					w.failf("a purchase was refused: %v; the claim is %+v", err, have)
				}
			case err == nil:
				var told money.Amount
				if json.Unmarshal(result, &told) != nil || told != price || have.Fingerprint != c.Fingerprint {
					w.failf("a purchase for %d was answered %s", price, result)
				}
				if calm && replayed != w.booked[x.ID] {
					w.failf("a purchase was replayed: %v", replayed)
				}
				w.came("a purchase", err, x)
			default:
				if have.By != (ID{}) && have.Fingerprint != c.Fingerprint {
					return // somebody else's has happened
				}
				w.came("a purchase", err, x)
			}
		}
	})
}

// refund takes back money, as far as it is there; the rest is owed.
func (w *world) refund(s step) {
	amount, ledger := s.amount+1, w.ledger
	x := Transfer{ID: w.id(), Kind: Refund, User: s.user}
	calm, want := w.calm(), min(amount, w.available(Wallet(s.user)))
	w.run(func() func() {
		r, err := ledger.ReserveUpTo(background, s.user, amount)
		if err == nil {
			got := r.Amount()
			if calm && got != want {
				w.failf("%d were reserved for a refund of %d, not %d", got, amount, want)
			}
			x.Legs = []Leg{
				{Account: Wallet(s.user), Amount: -got}, {Account: Receivable(s.user), Amount: got - amount},
				{Account: Paid("stripe"), Amount: amount},
			}
			err = ledger.Update(background, s.user, r, booking(w.store, x))
		}
		return func() { w.came("a refund", err, x) }
	})
}

// clear lets a user off what he owes.
func (w *world) clear(s step) {
	id := w.id()
	w.run(func() func() {
		err := w.ledger.Update(background, s.user, nil, func(t storage.Txn) error {
			owed, err := ReadState(t, Receivable(s.user))
			if err != nil {
				return err
			}
			return booking(w.store, Transfer{ID: id, Kind: Clear, User: s.user, Legs: Move(Operator, Receivable(s.user), -owed.Balance)})(t)
		})
		return func() {
			x, _ := w.transfer(id)
			x.ID = id
			w.came("a clear", err, x)
		}
	})
}

// order has a user's money spent in another order.
func (w *world) reorder(s step) {
	w.run(func() func() {
		err := w.ledger.Update(background, s.user, nil, func(t storage.Txn) error {
			return storage.SetRecord(t, orderKey(s.user), s.n)
		})
		return func() {
			if err != nil && !w.trouble {
				w.failf("changing the order: %v", err)
			}
			w.view(func(r storage.Reader) error {
				which := w.orders[s.user]
				_, err := storage.GetRecord(r, orderKey(s.user), &which)
				w.orders[s.user] = which
				return err
			})
		}
	})
}

// payers are who calls are made by: under no budget, that of the key, that of
// the user, or both.
var payers = [...][2]Budget{
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
	if owed := -w.balance[Receivable(p.User)]; owed > 0 {
		return &Short{Needed: amount, Owed: owed}
	}
	for _, b := range p.Budgets {
		if b.Limit > 0 {
			if left := w.left(p.User, b); left < amount {
				return &Short{Needed: amount, Available: left, Budget: b.Scope}
			}
		}
	}
	if available := w.available(w.order(p.User)...); available < amount {
		return &Short{Needed: amount, Available: available}
	}
	return nil
}

// left is what may be spent under a budget.
func (w *world) left(user string, b Budget) money.Amount {
	a := budgetAccount(user, b.Scope, b.Reset.Start(time.Now()).Unix())
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
	c := &madeCall{Call: Call{
		ID: w.id().String(), Time: time.Now().UnixMilli(), User: s.user, Key: "key_1", Model: "m", Usage: usage.Reported,
	}}
	calm, want, order := w.calm(), w.verdict(p, s.amount), w.order(s.user)
	w.run(func() func() {
		r, err := w.ledger.Reserve(background, p, s.amount)
		return func() {
			if calm {
				w.judge(want, err)
			}
			if err != nil {
				return
			}
			c.reservation = r
			for _, cap := range r.caps {
				c.under = append(c.under, cap.account)
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
func (w *world) inOrder(r *Reservation, order []Account) {
	left := r.amount
	parts := r.parts
	for _, a := range order {
		if take := min(left, w.available(a)); take > 0 {
			if len(parts) == 0 || parts[0].pot.account != a || parts[0].amount != take {
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
	if c := w.openCall(s.n, anyCall); c != nil {
		before := c.reservation.Amount()
		if got := c.reservation.Grow(s.amount); got > s.amount || c.reservation.Amount() != before+got {
			w.failf("growing by %d came to %d more", s.amount, got)
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
	paid := make(map[Account]money.Amount)
	for _, part := range c.reservation.parts {
		paid[part.pot.account] += part.charged
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
	x := Transfer{ID: w.id(), Kind: Hold, User: s.user}
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
			x.Legs = append(x.Legs, Leg{Account: part.pot.account, Held: part.amount})
		}
		for _, cap := range r.caps {
			x.Legs = append(x.Legs, Leg{Account: cap.account, Held: r.amount})
		}
		err = ledger.Update(background, s.user, r, func(t storage.Txn) error {
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
		err := w.ledger.Update(background, h.user, nil, func(t storage.Txn) (err error) {
			charged, err = EndHold(t, w.store.Now(), h.user, h.id, s.amount)
			return err
		})
		return func() { w.holdEnded(h, charged, err) }
	})
}

func (w *world) holdEnded(h *madeHold, charged money.Amount, err error) {
	var record holdRecord
	w.view(func(r storage.Reader) error {
		_, err := storage.GetRecord(r, holdKey(h.user, h.id), &record)
		return err
	})
	if err == nil && charged != record.Charged {
		w.failf("ending a hold came to %d, it has come to %d", charged, record.Charged)
	}
	x := Transfer{ID: endOf(h.id)}
	var held money.Amount
	for _, part := range h.parts {
		if !part.Account.memo() {
			held += part.Held
		}
	}
	// The money is taken from the parts in their order, and counts under budgets.
	left, meant := record.Charged, false
	for _, part := range h.parts {
		pays := record.Charged
		if !part.Account.memo() {
			pays = min(left, part.Held)
			left -= pays
		}
		x.Legs = append(x.Legs, Leg{Account: part.Account, Amount: -pays, Held: -part.Held})
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

// pass lets time go by.
func (w *world) pass(s step) {
	time.Sleep([...]time.Duration{time.Minute, Idle, 5 * time.Hour, 24 * time.Hour, 3 * 24 * time.Hour, 8 * 24 * time.Hour}[s.n])
}

func (w *world) fault(s step) {
	w.plan = max(w.plan, w.faulty.Commits()) + len(s.faults)
	w.trouble = true
	w.faulty.Plan(s.faults...)
}

func (w *world) shut(step) { w.gate.set(true) }

func (w *world) open(step) {
	w.gate.set(false)
	w.collect()
}

func (w *world) sweep(step) { w.ledger.Sweep() }

// restart ends the process in good order, but for the calls under way.
func (w *world) restart(s step) {
	w.open(s)
	w.settle()
	if w.store.Err() == nil {
		synctest.Wait()
		for _, c := range w.calls {
			c.durable = len(c.paid)
		}
	}
	w.crash()
}

// finish ends all that is open.
func (w *world) finish() {
	w.open(step{})
	for _, h := range w.holds {
		if !h.ended {
			h.costs = append(h.costs, 0)
			charged, err := money.Amount(0), w.ledger.Update(background, h.user, nil, func(t storage.Txn) error {
				_, err := EndHold(t, w.store.Now(), h.user, h.id, 0)
				return err
			})
			w.holdEnded(h, charged, err)
		}
	}
	for c := w.openCall(0, anyCall); c != nil; c = w.openCall(0, anyCall) {
		w.charge(c, 5, usage.Complete)
	}
	w.look()
	w.ledger.Sweep()
	time.Sleep(2 * Idle)
	w.ledger.Sweep()
	if stats := w.ledger.Stats(); stats != (Stats{}) {
		w.failf("in the end the figures are %+v", stats)
	}
}
