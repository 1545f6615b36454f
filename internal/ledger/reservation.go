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
)

// Reservation is money that one debit alone may use, until the debit has been
// committed or the reservation released. Its methods are called by one goroutine
// at a time.
type Reservation struct {
	ledger   *Ledger
	balances *balances // nil when there was nothing to reserve
	parts    []part
	caps     []allowance

	amount  money.Amount // in all
	charged money.Amount // settled so far, committed or queued
	ended   bool         // released, or its final settlement queued
	call    bool         // it is one of the calls under a tolerance

	settlements int                       // so far
	counted     journal.Usage             // by them
	array       [2]part                   // backs parts: most have one
	capped      [len(Budgets{})]allowance // backs caps
}

// part is what a reservation has from one source.
type part struct {
	source  *fundingSource
	amount  money.Amount // reserved in all
	charged money.Amount // of that, settled so far
}

// Reserve gives a call what it may cost at most, from the payer's sources in the payer's
// order and within the user's budgets: all of it, or nothing and a [*Short]. If a user is beyond
// the payer's Tolerance, the call may be refused with [ErrOneAtATime] and [ErrFullContext]. It reads
// memory only, but for a user's first call in a while or in a new period.
func (l *Ledger) Reserve(ctx context.Context, payer Payer, amount money.Amount) (*Reservation, error) {
	r := &Reservation{ledger: l}
	if amount == 0 {
		return r, nil
	}
	r.caps = r.capped[:0]
	p, now, err := l.unlock(ctx, payer, &r.caps)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	if p.losses.exceed(now, payer.Tolerance) {
		switch {
		case p.calls > 0:
			return nil, ErrOneAtATime
		case !payer.FullContext:
			return nil, ErrFullContext
		}
	}
	if short := p.short(amount, r.caps); short != nil {
		return nil, short
	}
	r.begin(p)
	if payer.Tolerance != 0 {
		r.call = true
		p.calls++
	}
	r.take(amount, p.order...)
	return r, nil
}

// ReserveWallet reserves for a durable debit of the wallet: all of amount, or
// nothing and a [*Short].
func (l *Ledger) ReserveWallet(ctx context.Context, user string, amount money.Amount) (*Reservation, error) {
	r := &Reservation{ledger: l}
	if amount == 0 {
		return r, nil
	}
	p, _, err := l.unlock(ctx, Payer{User: user}, nil)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	wallet := p.sources[journal.Wallet(user)]
	if available := wallet.available(); p.owed > 0 || available < amount {
		return nil, &Short{Needed: amount, Available: available, Owed: p.owed}
	}
	r.begin(p)
	r.take(amount, wallet)
	return r, nil
}

// ReserveUpTo reserves as much of amount as the wallet has, also while spending
// is paused: for what is owed already.
func (l *Ledger) ReserveUpTo(ctx context.Context, user string, amount money.Amount) (*Reservation, error) {
	r := &Reservation{ledger: l}
	p, _, err := l.unlock(ctx, Payer{User: user}, nil)
	if err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	wallet := p.sources[journal.Wallet(user)]
	r.begin(p)
	r.take(min(amount, wallet.available()), wallet)
	return r, nil
}

// unlock returns the payer's balances, their mutex held, as they stand at the time
// that it returns with it, and sets caps to what the payer's budgets allow, if there are
// any. The caller unlocks the mutex.
func (l *Ledger) unlock(ctx context.Context, payer Payer, caps *[]allowance) (*balances, time.Time, error) {
	// Nothing more is spent while the store does not take what was spent already.
	if err := cmp.Or(l.store.Err(), l.settler.failing()); err != nil {
		return nil, time.Time{}, fault.OfStore(err)
	}
	for range maxLoads {
		p, now := l.balanceCache.of(payer.User), l.store.Now()
		p.mu.Lock()
		switch known := !p.gone && p.knows(payer, now, caps); {
		case p.gone:
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
	return nil, time.Time{}, fmt.Errorf("ledger: the balances of %s are never up to date", payer.User)
}

// maxLoads is how often the balances may be found out of date, or dropped, between
// being read and being used. One is the rule.
const maxLoads = 16

// begin puts the reservation into the counts of the ledger. The mutex is held.
func (r *Reservation) begin(p *balances) {
	r.balances, r.parts = p, r.array[:0]
	p.open++
	r.ledger.open.Add(1)
}

// take reserves amount, which is there, from sources in their order. The mutex is
// held.
func (r *Reservation) take(amount money.Amount, sources ...*fundingSource) {
	r.amount += amount
	r.ledger.reserved.Add(int64(amount))
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
		i := slices.IndexFunc(r.parts, func(p part) bool { return p.source == source })
		if i < 0 {
			i = len(r.parts)
			r.parts = append(r.parts, part{source: source})
		}
		r.parts[i].amount += got
	}
}

// Grow reserves up to amount more, as far as sources and budgets allow, and returns how much
// that was, with the missing amount; nil if nothing is missing. If a call costs more than it has
// reserved, its reservation grows before it is settled.
func (r *Reservation) Grow(amount money.Amount) (granted money.Amount, lacks *Short) {
	p := r.balances
	if p == nil || amount <= 0 || r.ended {
		return 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	lacks = p.short(amount, r.caps)
	if !p.loaded { // an unknown balance is not reserved
		return 0, cmp.Or(lacks, &Short{Needed: amount})
	}
	if p.owed > 0 {
		return 0, lacks
	}
	granted = min(amount, p.available())
	for _, c := range r.caps {
		granted = min(granted, c.left())
	}
	r.take(granted, p.order...)
	return granted, lacks
}

// Amount is what the reservation may be charged at most.
func (r *Reservation) Amount() money.Amount { return r.amount }

// Release gives back what is reserved and was not charged. It does nothing after
// a final settlement or a second time.
func (r *Reservation) Release() {
	if r == nil || r.ended {
		return
	}
	r.ended = true
	if r.balances != nil {
		r.balances.mu.Lock()
		defer r.balances.mu.Unlock()
		r.over()
		r.close()
	}
}

// over ends the call in the count of those under way. The mutex is held.
func (r *Reservation) over() {
	if r.call {
		r.call = false
		r.balances.calls--
	}
}

// close gives back what is left and takes the reservation out of the counts of
// the ledger. The mutex is held.
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

// change is what one settlement takes from a source; negative: gives back.
type change struct {
	source *fundingSource
	by     money.Amount
}

// charge spreads total, as far as it is reserved, over the parts in their order
// and returns how that differs from what was charged before.
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

// shrink releases at once what the final settlement leaves, so that the next call does not wait
// for a commit. What an earlier settlement took and this one gives back is free only when this
// one is durable. It counts what the call was charged, and what could not be collected.
func (r *Reservation) shrink(before []change, c *journal.Call) {
	if r.balances == nil {
		return
	}
	r.balances.mu.Lock()
	defer r.balances.mu.Unlock()
	r.over()
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

// end follows a settlement that is durable, or that can never be written and has
// not been paid: then what it charged is the operator's loss. After the final one
// whatever else is reserved is free again. It runs where the order of commits is
// kept: on the goroutine that commits, or between two batches of the settler.
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

// CheckFunds returns a [*Short] that needs nothing if the payer has no money at all to
// reserve: the balance or a budget is used up, or spending is paused. It reads memory
// only, but for a user's first call in a while or in a new period.
func (l *Ledger) CheckFunds(ctx context.Context, payer Payer) error {
	caps := make([]allowance, 0, len(payer.Budgets))
	p, _, err := l.unlock(ctx, payer, &caps)
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	if short := p.short(0, caps); short != nil {
		return short
	}
	return nil
}

// Hold makes a reservation durable: what it has is set aside, in the sources and
// under the budgets that it has it from, until the hold is settled or voided. It
// is called in the transaction of [Ledger.Update] that the reservation is given
// to. The id was drawn for it.
func (r *Reservation) Hold(t *Txn, now time.Time, user string, id journal.ID, reference string) error {
	parts := make([]journal.Leg, 0, len(r.parts)+len(r.caps))
	for _, p := range r.parts {
		parts = append(parts, journal.Leg{Account: p.source.account, Held: p.amount})
	}
	for _, c := range r.caps {
		parts = append(parts, journal.Leg{Account: c.account, Held: r.amount})
	}
	_, err := t.BookNew(now, journal.Transfer{ID: id, Kind: journal.Hold, User: user, Legs: parts, Reference: reference})
	return err
}
