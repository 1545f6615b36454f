package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Reservation is money that only one debit may use, until the debit is committed or the
// reservation is released. Its methods must not be called concurrently.
type Reservation struct {
	ledger   *Ledger
	balances *balances // nil if the reserved amount is zero
	parts    []part
	caps     []allowance

	amount  money.Amount // total
	charged money.Amount // settled so far, committed or queued
	ended   bool         // released, or its final settlement queued
	call    bool         // counted in balances.calls

	hold    *journal.CallHold         // in the store, of a call on a shared store; otherwise nil
	confirm func(t storage.Txn) error // of a debit on a shared store, see [Reservation.Confirm]; otherwise nil

	settlements int                       // number so far
	counted     journal.Usage             // usage that these settlements have counted
	array       [2]part                   // backs parts: most reservations have one
	capped      [len(Budgets{})]allowance // backs caps
}

// part is the part of a reservation from one source.
type part struct {
	source  *fundingSource
	amount  money.Amount // reserved in total
	charged money.Amount // of that, settled so far
}

// Reserve reserves the highest possible cost of a call from the payer's sources, in the payer's
// order and within the budgets. It reserves all of amount, or returns a [*Shortfall]. If the user
// exceeds the payer's Tolerance, it may return [ErrOneAtATime] or [ErrFullContext]. It reads the
// store only for a user's first call after a while or in a new period.
func (l *Ledger) Reserve(ctx context.Context, payer Payer, amount money.Amount) (*Reservation, error) {
	r := &Reservation{ledger: l}
	switch {
	case amount == 0:
		return r, nil
	case l.store.Shared():
		return l.reserveCall(ctx, payer, amount)
	}
	r.caps = r.capped[:0]
	p, now, err := l.lockBalances(ctx, payer, &r.caps)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	if err := p.restrict(payer, now); err != nil {
		return nil, err
	}
	if shortfall := p.shortfall(amount, r.caps); shortfall != nil {
		return nil, shortfall
	}
	r.begin(p)
	if payer.Tolerance != 0 {
		r.call = true
		p.calls++
	}
	r.take(amount, p.order...)
	r.count()
	return r, nil
}

// ReserveHold reserves as Reserve does, for a [Reservation.Hold] by [Ledger.Update]. If the store is
// shared, Hold returns the [*Shortfall].
func (l *Ledger) ReserveHold(ctx context.Context, payer Payer, amount money.Amount) (*Reservation, error) {
	if !l.store.Shared() || amount == 0 {
		return l.Reserve(ctx, payer, amount)
	}
	return l.reserveLater(payer, func(p *balances, r *Reservation) error {
		if shortfall := p.shortfall(amount, r.caps); shortfall != nil {
			return shortfall
		}
		r.begin(p)
		r.take(amount, p.order...)
		return nil
	})
}

// ReserveWallet reserves amount for a durable debit of the wallet by [Ledger.Update]. It reserves all
// of amount, or returns a [*Shortfall]. If the store is shared, [Reservation.Confirm] does this.
func (l *Ledger) ReserveWallet(ctx context.Context, user string, amount money.Amount) (*Reservation, error) {
	return l.reserveDebit(ctx, user, func(p *balances, r *Reservation) error {
		wallet := p.sources[journal.Wallet(user)]
		if available := wallet.available(); amount > 0 && (p.owed > 0 || available < amount) {
			return &Shortfall{Needed: amount, Available: available, Owed: p.owed}
		}
		r.begin(p)
		r.take(amount, wallet)
		return nil
	})
}

// ReserveUpTo reserves as much of amount as the wallet has, for a debit by [Ledger.Update]. It does so
// also while spending is paused, because it serves to pay what the user already owes. If the store is
// shared, [Reservation.Amount] is known after [Reservation.Confirm].
func (l *Ledger) ReserveUpTo(ctx context.Context, user string, amount money.Amount) (*Reservation, error) {
	return l.reserveDebit(ctx, user, func(p *balances, r *Reservation) error {
		wallet := p.sources[journal.Wallet(user)]
		r.begin(p)
		r.take(min(amount, wallet.available()), wallet)
		return nil
	})
}

// reserveDebit calls take now, or on a shared store in the transaction of the debit.
func (l *Ledger) reserveDebit(ctx context.Context, user string, take func(*balances, *Reservation) error) (*Reservation, error) {
	if l.store.Shared() {
		return l.reserveLater(Payer{User: user}, take)
	}
	r := &Reservation{ledger: l}
	p, _, err := l.lockBalances(ctx, Payer{User: user}, nil)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	if err := take(p, r); err != nil {
		return nil, err
	}
	r.count()
	return r, nil
}

// lockBalances returns the payer's up-to-date balances with their mutex held, and the time. It
// sets caps to the payer's budgets. The caller unlocks the mutex.
func (l *Ledger) lockBalances(ctx context.Context, payer Payer, caps *[]allowance) (*balances, time.Time, error) {
	// No reservation is made while the store refuses settlements.
	if err := cmp.Or(l.store.Err(), l.settler.failing()); err != nil {
		return nil, time.Time{}, fault.OfStore(err)
	}
	for range maxLoads {
		p, now := l.balanceCache.of(payer.User), l.store.Now()
		p.mu.Lock()
		switch known := !p.dropped && p.allowances(payer, now, caps); {
		case p.dropped:
			p.mu.Unlock()
			continue
		case known && p.fresh(now):
			p.used = now
			return p, now, nil
		}
		p.loads++
		p.mu.Unlock()
		err := l.load(ctx, payer.User)
		p.mu.Lock()
		p.loads--
		p.mu.Unlock()
		if err != nil {
			return nil, now, err
		}
	}
	return nil, time.Time{}, fmt.Errorf("ledger: the balances of %s cannot be loaded", payer.User)
}

// maxLoads is how often lockBalances loads balances that are out of date or were dropped before
// they are used. Usually one load is enough.
const maxLoads = 16

// begin counts the reservation as open in p. The mutex is held.
func (r *Reservation) begin(p *balances) {
	r.balances, r.parts = p, r.array[:0]
	p.open++
}

// count adds the reservation to the figures of the ledger.
func (r *Reservation) count() {
	r.ledger.open.Add(1)
	r.ledger.reserved.Add(int64(r.amount))
}

// take reserves amount from sources in their order. The sources must have it. The mutex is held.
func (r *Reservation) take(amount money.Amount, sources ...*fundingSource) {
	r.amount += amount
	for _, c := range r.caps {
		c.reserved += amount
	}
	for _, source := range sources {
		got := min(amount, source.available())
		if got == 0 {
			continue
		}
		amount -= got
		source.reserved += got
		r.add(source, got)
	}
}

// add adds an amount from a source to the parts.
func (r *Reservation) add(source *fundingSource, amount money.Amount) {
	i := slices.IndexFunc(r.parts, func(p part) bool { return p.source.account == source.account })
	if i < 0 {
		i = len(r.parts)
		r.parts = append(r.parts, part{source: source})
	}
	r.parts[i].amount += amount
}

// Grow reserves up to amount more, as far as sources and budgets allow. It returns the amount that
// it has reserved, and the shortfall if that is less than amount. A call that costs more than it
// has reserved grows its reservation before it is settled. On a shared store, Grow waits until the
// hold is durable.
func (r *Reservation) Grow(amount money.Amount) (granted money.Amount, missing *Shortfall) {
	p := r.balances
	if p == nil || amount <= 0 || r.ended {
		return 0, nil
	}
	if r.hold != nil {
		return r.growHold(amount)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.loaded { // an unknown balance is not reserved
		return 0, cmp.Or(p.shortfall(amount, r.caps), &Shortfall{Needed: amount})
	}
	granted, missing = r.grow(p, amount)
	r.ledger.reserved.Add(int64(granted))
	return granted, missing
}

// grow takes up to amount from p. The mutex is held.
func (r *Reservation) grow(p *balances, amount money.Amount) (granted money.Amount, missing *Shortfall) {
	missing = p.shortfall(amount, r.caps)
	if p.owed > 0 {
		return 0, missing
	}
	granted = min(amount, p.available())
	for _, c := range r.caps {
		granted = min(granted, c.left())
	}
	r.take(granted, p.order...)
	return granted, missing
}

// Amount returns the reserved amount, which is the highest amount that may be charged. It is zero for
// a nil reservation.
func (r *Reservation) Amount() money.Amount {
	if r == nil {
		return 0
	}
	return r.amount
}

// Release releases the reserved amount that was not charged. It does nothing if the reservation
// has ended.
func (r *Reservation) Release() {
	if r == nil || r.ended {
		return
	}
	r.ended = true
	if r.balances == nil || r.confirm != nil {
		return
	}
	if r.hold != nil {
		defer r.void()
	}
	r.balances.mu.Lock()
	defer r.balances.mu.Unlock()
	r.uncount()
	r.close()
}

// uncount removes the call from the count of running calls. The mutex is held.
func (r *Reservation) uncount() {
	if r.call {
		r.call = false
		r.balances.calls--
	}
}

// close releases the rest of the reservation and counts it as ended. The mutex is held.
func (r *Reservation) close() {
	left := r.amount - r.charged
	for _, part := range r.parts {
		part.source.reserved -= part.amount - part.charged
	}
	for _, c := range r.caps {
		c.reserved -= left
	}
	r.balances.open--
	r.ledger.open.Add(-1)
	r.ledger.reserved.Add(-int64(left))
}

// change is the amount that one settlement takes from a source. A negative amount is returned.
type change struct {
	source *fundingSource
	by     money.Amount
}

// charge sets the charged amount to total, at most the reserved amount, and splits it over the
// parts in their order. It returns the changes since the previous settlement.
func (r *Reservation) charge(total money.Amount) []change {
	r.charged = min(total, r.amount)
	left := r.charged
	var changes []change
	for i := range r.parts {
		part := &r.parts[i]
		now := min(left, part.amount)
		left -= now
		if by := now - part.charged; by != 0 {
			changes = append(changes, change{part.source, by})
			part.charged = now
		}
	}
	return changes
}

// shrink releases the reserved amount that the final settlement does not charge, so that the next
// call does not wait for a commit. An amount that this settlement returns is released only when
// the settlement is durable. shrink also counts the charged and the uncollected amount.
func (r *Reservation) shrink(before []change, c *journal.Call) {
	if r.balances == nil {
		return
	}
	r.balances.mu.Lock()
	defer r.balances.mu.Unlock()
	r.uncount()
	r.balances.losses.add(c.End(), c.Cost, c.Uncollected)
	var freed money.Amount
	for i := range r.parts {
		part := &r.parts[i]
		keep := part.charged
		for _, c := range before {
			if c.source == part.source && c.by < 0 {
				keep -= c.by
			}
		}
		part.source.reserved -= part.amount - keep
		freed += part.amount - keep
		part.amount = keep
	}
	for _, c := range r.caps {
		c.reserved -= freed
	}
	r.amount -= freed
	r.ledger.reserved.Add(-int64(freed))
}

// end updates the balances after a settlement. paid says that the settlement is durable; otherwise
// it can never be written, and the operator loses its charge. After the final settlement end
// closes the reservation. It runs on the goroutine that commits, or between two batches of the
// settler, so that the order of commits is kept.
func (r *Reservation) end(changes []change, final, paid bool) {
	if r.balances == nil {
		return
	}
	r.balances.mu.Lock()
	defer r.balances.mu.Unlock()
	var sum money.Amount
	for _, c := range changes {
		c.source.reserved -= c.by
		sum += c.by
		if paid {
			c.source.durable -= c.by
		}
	}
	for _, c := range r.caps {
		c.reserved -= sum
		if paid {
			c.used += sum
		}
	}
	r.ledger.reserved.Add(-int64(sum))
	if final {
		r.close()
	}
}

// CheckFunds returns a [*Shortfall] without an amount if the payer cannot reserve anything: the
// balance or a budget is used up, or spending is paused. It reads the store only for a user's
// first call after a while or in a new period.
func (l *Ledger) CheckFunds(ctx context.Context, payer Payer) error {
	if l.store.Shared() {
		return l.checkFunds(ctx, payer)
	}
	caps := make([]allowance, 0, len(payer.Budgets))
	p, _, err := l.lockBalances(ctx, payer, &caps)
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	if shortfall := p.shortfall(0, caps); shortfall != nil {
		return shortfall
	}
	return nil
}

// Hold makes a reservation durable: it sets the reserved amount aside in the same sources and
// budgets until the hold is captured or voided. It must be called in the transaction of
// [Ledger.Update] with this reservation, which it confirms. id must be new.
func (r *Reservation) Hold(t *Txn, now time.Time, user string, id journal.ID, reference string) error {
	if err := r.Confirm(t); err != nil {
		return err
	}
	_, err := t.BookNew(now, journal.Transfer{ID: id, Kind: journal.Hold, User: user, Legs: r.held(), Reference: reference})
	return err
}
