package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// This file reserves on a shared store. There, other nodes spend the same money, so a reservation
// in memory is not enough. A call holds its money in the store: one transaction reads the user's
// sources and budgets, applies the rules of balances to them, and writes a [journal.CallHold]. A
// debit by [Ledger.Update] needs no hold, because its own transaction reserves; see
// [Reservation.Confirm].

// readBalances returns what the user may spend now, read in the transaction, and reads the budgets
// of the reservation. The result belongs to the reservation alone.
func (l *Ledger) readBalances(t storage.Txn, payer Payer, r *Reservation) (*balances, error) {
	found, err := l.read(t, payer.User)
	if err != nil {
		return nil, err
	}
	found.load = true
	p := newBalances(payer.User)
	p.install(found, nil)
	if r.caps == nil {
		r.caps = r.capped[:0]
		p.allowances(payer, found.at, &r.caps)
	}
	for i := range r.caps { // a reservation that grows keeps the periods in which it began
		c := &r.caps[i]
		state, err := journal.ReadState(t, c.account)
		if err != nil {
			return nil, err
		}
		c.budgetUsage = &budgetUsage{account: c.account, known: true, used: state.Used()}
	}
	return p, nil
}

// transact runs the transaction of a hold, and measures how long the call waits for it.
func (l *Ledger) transact(ctx context.Context, fn func(storage.Txn) error) error {
	if err := cmp.Or(l.store.Err(), l.settler.failing()); err != nil {
		return fault.OfStore(err)
	}
	began := time.Now()
	err := l.store.Update(ctx, fn)
	if l.opts.OnReserve != nil {
		l.opts.OnReserve(time.Since(began))
	}
	return refusalOrFault(err)
}

// refusalOrFault returns a refusal of a reservation unchanged, and the fault of any other error.
func refusalOrFault(err error) error {
	if short, is := errors.AsType[*Shortfall](err); is {
		return short
	}
	for _, refusal := range [...]error{ErrOneAtATime, ErrFullContext, errLossy} {
		if errors.Is(err, refusal) {
			return refusal
		}
	}
	return fault.OfStore(err)
}

// errLossy ends a transaction before which the losses of the user must be read.
var errLossy = errors.New("ledger: the user's losses are not known")

// reserveCall is [Ledger.Reserve] on a shared store.
func (l *Ledger) reserveCall(ctx context.Context, payer Payer, amount money.Amount) (*Reservation, error) {
	r, number, known, held := new(Reservation), l.holds.Add(1), (*losses)(nil), false
	try := func(t storage.Txn) error {
		*r = Reservation{ledger: l, hold: &journal.CallHold{User: payer.User, Epoch: l.store.Epoch(), Number: number}}
		if r.hold.Counted = payer.Tolerance != 0; r.hold.Counted {
			if err := l.checkTolerance(t, payer, known); err != nil {
				return err
			}
		}
		p, err := l.readBalances(t, payer, r)
		if err != nil {
			return err
		}
		if shortfall := p.shortfall(amount, r.caps); shortfall != nil {
			held = false
			err := journal.ScanCallHolds(t, payer.User, func(journal.CallHold) bool {
				held = true
				return false
			})
			return cmp.Or(err, error(shortfall))
		}
		r.begin(p)
		r.take(amount, p.order...)
		return r.hold.Change(t, r.held())
	}
	var err error
	for waited := false; ; {
		err = l.transact(ctx, try)
		short, _ := errors.AsType[*Shortfall](err)
		switch {
		case errors.Is(err, errLossy):
			if known, err = l.recentLosses(ctx, payer.User); err == nil {
				continue
			}
		case short != nil && short.Owed == 0 && held && !waited && l.awaitSettlements(ctx):
			waited = true
			continue
		}
		break
	}
	l.noteFunded(payer.User, err == nil)
	if err != nil {
		return nil, err
	}
	r.count()
	return r, nil
}

// settlementWait is how long a call that finds too little money waits for the settlements of other calls
// of its user. Calls that have ended hold their money until the next batch of their node is durable.
const settlementWait = 200 * time.Millisecond

// awaitSettlements waits for settlementWait. It returns false if ctx ended.
func (l *Ledger) awaitSettlements(ctx context.Context) bool {
	l.store.CommitNow()
	timer := time.NewTimer(settlementWait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// held returns the legs by which the accounts set aside what r reserves.
func (r *Reservation) held() []journal.Leg {
	legs := make([]journal.Leg, 0, len(r.parts)+len(r.caps))
	for _, p := range r.parts {
		legs = append(legs, journal.Leg{Account: p.source.account, Held: p.amount})
	}
	for _, c := range r.caps {
		legs = append(legs, journal.Leg{Account: c.account, Held: r.amount})
	}
	return legs
}

// growTimeout bounds how long Grow waits for a shared store.
const growTimeout = 5 * time.Second

// growHold is [Reservation.Grow] on a shared store. It grants nothing if the store does not answer.
func (r *Reservation) growHold(amount money.Amount) (granted money.Amount, missing *Shortfall) {
	l, more := r.ledger, new(Reservation)
	ctx, cancel := context.WithTimeout(context.Background(), growTimeout)
	defer cancel()
	err := l.transact(ctx, func(t storage.Txn) error {
		*more, granted = Reservation{ledger: l}, 0
		more.caps = append(more.capped[:0], r.caps...)
		h, err := journal.ReadCallHold(t, r.hold.StoreKey())
		if err != nil {
			return err
		}
		if h == nil {
			return fmt.Errorf("ledger: a call of %s has lost its hold", r.hold.User)
		}
		p, err := l.readBalances(t, Payer{User: r.hold.User}, more)
		if err != nil {
			return err
		}
		more.begin(p)
		if granted, missing = more.grow(p, amount); granted == 0 {
			return nil
		}
		return h.Change(t, more.held())
	})
	if err != nil {
		return 0, &Shortfall{Needed: amount}
	}
	for _, part := range more.parts {
		r.add(part.source, part.amount)
	}
	r.amount += granted
	l.reserved.Add(int64(granted))
	return granted, missing
}

// void queues the end of the hold of a call that ends without a settlement.
func (r *Reservation) void() {
	r.ledger.settler.put(&settlement{reservation: r, final: true, void: true})
}

// openCallValue returns the value of the index of running calls; see [journal.EpochOfOpenCall].
func (l *Ledger) openCallValue() []byte {
	if !l.store.Shared() {
		return nil
	}
	return storage.Key(l.store.Epoch())
}

// settleHold takes the amount of a settlement from the hold of its call, in the transaction of the
// batch. A final settlement ends the hold.
func (x *settlement) settleHold(t storage.Txn) error {
	r := x.reservation
	if r.hold == nil {
		return nil
	}
	h, err := journal.ReadCallHold(t, r.hold.StoreKey())
	if err != nil || h == nil {
		return err // nil: an earlier run was committed
	}
	if x.final {
		return h.End(t)
	}
	var legs []journal.Leg
	for _, c := range x.changes {
		legs = append(legs, journal.Leg{Account: c.source.account, Held: -c.by})
		for _, a := range r.caps {
			legs = append(legs, journal.Leg{Account: a.account, Held: -c.by})
		}
	}
	return h.Change(t, legs)
}
