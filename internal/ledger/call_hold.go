package ledger

import (
	"bytes"
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

// checkTolerance returns the error for a call of a user whose uncollected amounts exceed the
// tolerance. It counts the calls of all nodes. If it needs known and known is nil, it returns errLossy.
func (l *Ledger) checkTolerance(t storage.Reader, payer Payer, known *losses) error {
	lossy, err := t.Get(storage.Key(lossyPrefix, payer.User))
	switch {
	case err != nil || lossy == nil:
		return err
	case known == nil:
		return errLossy
	}
	p := balances{losses: *known}
	now := l.store.Now()
	if p.losses.exceed(now, payer.Tolerance) {
		err = journal.ScanCallHolds(t, payer.User, func(h journal.CallHold) bool {
			if h.Counted {
				p.calls++
			}
			return true
		})
	}
	return cmp.Or(err, p.restrict(payer, now))
}

// lossesRead is how long the losses of a user are kept that were read from a shared store.
const lossesRead = time.Second

// recentLosses returns the losses of a user as the store had them at most lossesRead ago.
func (l *Ledger) recentLosses(ctx context.Context, user string) (*losses, error) {
	done, err := l.lossReads.Lock(ctx, user) // one read at a time: it may be long
	if err != nil {
		return nil, err
	}
	defer done()
	p, now := l.balanceCache.of(user), l.store.Now()
	p.mu.Lock()
	recent := p.losses
	fresh := recent.known && !now.Before(p.read) && now.Sub(p.read) < lossesRead
	p.mu.Unlock()
	if fresh {
		return &recent, nil
	}
	read, err := l.knownLosses(ctx, user)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses, p.read = read, l.store.Now()
	p.used = p.read
	return &read, nil
}

// reserveLater returns the reservation of a debit by [Ledger.Update] on a shared store. It reserves
// nothing yet: [Reservation.Confirm] calls take in the transaction of the debit.
func (l *Ledger) reserveLater(payer Payer, take func(p *balances, r *Reservation) error) (*Reservation, error) {
	if err := cmp.Or(l.store.Err(), l.settler.failing()); err != nil {
		return nil, fault.OfStore(err)
	}
	r := &Reservation{ledger: l}
	r.confirm = func(t storage.Txn) error {
		r.balances, r.parts, r.caps, r.amount = nil, nil, nil, 0
		p, err := l.readBalances(t, payer, r)
		if err != nil {
			return err
		}
		return take(p, r)
	}
	return r, nil
}

// Confirm reserves in the transaction t of [Ledger.Update] if the store is shared, or returns the
// [*Shortfall]. It must be called before the amount is used. If the store is not shared, the amount is
// already reserved, and Confirm does nothing. r may be nil.
func (r *Reservation) Confirm(t *Txn) error {
	if r == nil || r.confirm == nil {
		return nil
	}
	return r.confirm(t)
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

// fundedFor is how long CheckFunds assumes that a user who could reserve still can. So most calls need
// no read of the shared store. If the assumption is wrong, Reserve refuses the call.
const fundedFor = 5 * time.Second

// noteFunded records for CheckFunds whether a user could reserve.
func (l *Ledger) noteFunded(user string, funded bool) {
	p := l.balanceCache.of(user)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used = l.store.Now(); funded {
		p.funded = p.used
	} else {
		p.funded = time.Time{}
	}
}

// checkFunds is [Ledger.CheckFunds] on a shared store.
func (l *Ledger) checkFunds(ctx context.Context, payer Payer) error {
	if err := cmp.Or(l.store.Err(), l.settler.failing()); err != nil {
		return fault.OfStore(err)
	}
	if p := l.balanceCache.find(payer.User); p != nil {
		p.mu.Lock()
		since := l.store.Now().Sub(p.funded)
		p.mu.Unlock()
		if since >= 0 && since < fundedFor {
			return nil
		}
	}
	err := l.store.View(ctx, func(r storage.Reader) error {
		own := &Reservation{ledger: l}
		p, err := l.readBalances(&dryTxn{Reader: r, set: map[string][]byte{}}, payer, own)
		if err != nil {
			return err
		}
		if shortfall := p.shortfall(0, own.caps); shortfall != nil {
			return shortfall
		}
		return nil
	})
	l.noteFunded(payer.User, err == nil)
	return refusalOrFault(err)
}

// dryTxn is a transaction that is never committed. Only Get sees its writes.
type dryTxn struct {
	storage.Reader
	set map[string][]byte
}

// Get implements [storage.Reader].
func (t *dryTxn) Get(key []byte) ([]byte, error) {
	if val, written := t.set[string(key)]; written {
		return val, nil
	}
	return t.Reader.Get(key)
}

// Set implements [storage.Txn].
func (t *dryTxn) Set(key, val []byte, _ time.Time) error {
	if val == nil {
		val = []byte{}
	}
	t.set[string(key)] = val
	return nil
}

// Delete implements [storage.Txn].
func (t *dryTxn) Delete(key []byte) error {
	t.set[string(key)] = nil
	return nil
}

// clearBatch is how many holds or calls one transaction of EndEpoch ends.
const clearBatch = 200

// EndEpoch clears up after the calls of an ended epoch of a shared store: it releases their holds, and
// closes their records as after a crash. Recorded charges stay. It may be called again, also by two
// nodes at the same time.
func (l *Ledger) EndEpoch(ctx context.Context, epoch int64) error {
	return fault.OfStore(l.endCalls(ctx, func(of int64) bool { return of == epoch }, func(r storage.Reader) error {
		if ended, err := storage.HasEnded(r, epoch); err != nil || ended {
			return err
		}
		return fmt.Errorf("ledger: epoch %d has not ended", epoch)
	}))
}

// endCalls ends the open calls whose epoch is selected; calls of a lone store have the epoch zero. Each
// transaction calls check first.
func (l *Ledger) endCalls(ctx context.Context, selected func(epoch int64) bool, check func(storage.Reader) error) error {
	var left [][]byte
	var kept journal.Retention
	err := l.store.View(ctx, func(r storage.Reader) (err error) {
		if kept, err = journal.ReadRetention(r); err != nil { // without it, no settlement can be written
			return err
		}
		if err := check(r); err != nil {
			return err
		}
		var bad error
		holds := journal.ScanCallHolds(r, "", func(h journal.CallHold) bool {
			if selected(h.Epoch) {
				left = append(left, h.StoreKey())
			}
			return true
		})
		open := []byte(journal.OpenCallPrefix)
		calls := r.Scan(open, storage.PrefixEnd(open), func(key, val []byte) bool {
			var epoch int64
			if epoch, bad = journal.EpochOfOpenCall(val); bad == nil && selected(epoch) {
				left = append(left, bytes.Clone(key))
			}
			return bad == nil
		})
		return errors.Join(holds, calls, bad)
	})
	for err == nil && len(left) > 0 {
		n := min(len(left), clearBatch)
		err = l.store.Update(ctx, func(t storage.Txn) error {
			if err := check(t); err != nil {
				return err
			}
			for _, key := range left[:n] {
				if err := l.endCall(t, key, kept); err != nil {
					return err
				}
			}
			return nil
		})
		left = left[n:]
	}
	return err
}

// endCall ends the hold or the open call at a key.
func (l *Ledger) endCall(t storage.Txn, key []byte, kept journal.Retention) error {
	rest, isCall := bytes.CutPrefix(key, []byte(journal.OpenCallPrefix))
	if !isCall {
		h, err := journal.ReadCallHold(t, key)
		if err != nil || h == nil {
			return err
		}
		return h.End(t)
	}
	record := append([]byte(journal.CallPrefix), rest...)
	c, found, err := journal.ReadCall(t, record)
	if err != nil {
		return err
	}
	if found && c.Ended == "" {
		c.Ended = journal.Crashed
		if err := t.Set(record, c.Encode(record), l.store.Now().Add(kept.Kept)); err != nil {
			return err
		}
	}
	return t.Delete(key)
}
