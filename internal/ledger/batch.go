package ledger

import (
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// batch is the settlements of one transaction. The first run of the transaction takes them from
// the queue. Further runs have the same settlements.
type batch struct {
	settler     *settler
	id          journal.ID
	settlements []*settlement
	readings    map[string]*reading // by user, if a settlement was already committed
	unknown     bool                // an earlier run may have been committed
	short       []shortage          // accounts with less than the balances allowed
}

// take moves settlements from the queue to the batch.
func (b *batch) take(now time.Time) {
	s := b.settler
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), maxBatch)
	b.settlements = append([]*settlement(nil), s.waiting[:n]...)
	clear(s.waiting[:n])
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	b.id = journal.TimedID(now)
}

// split halves a batch that the store refuses. If one settlement remains and cannot be written,
// split drops it, so that the others are written. Its charge is lost to the operator and is
// logged as an error.
func (b *batch) split(why error) {
	s := b.settler
	n := len(b.settlements)
	if n > 1 {
		s.mu.Lock()
		s.waiting = append(b.settlements[n/2:n:n], s.waiting...)
		s.mu.Unlock()
		b.settlements = b.settlements[:n/2]
		return
	}
	if n == 0 {
		return
	}
	x := b.settlements[0]
	s.ledger.mismatches.Add(1)
	s.ledger.log.Error("a settlement cannot be written and is dropped", zap.String("request_id", x.call.ID),
		zap.String("user_id", x.call.User), zap.Stringer("cost", x.call.Cost), zap.Error(why))
	x.end(false)
	b.settlements = nil
	s.mu.Lock()
	for _, c := range x.changes {
		s.atRisk -= c.by
	}
	s.mu.Unlock()
	<-s.slots
}

// write writes the records of the calls, one transfer for all calls, and the usage of their days.
func (b *batch) write(t storage.Txn) error {
	l := b.settler.ledger
	now := l.store.Now()
	if b.settlements == nil {
		b.take(now)
	}
	kept, err := journal.ReadRetention(t)
	if err != nil {
		return err
	}
	b.readings = make(map[string]*reading)
	f := batchTotals{owed: make(map[journal.Account]money.Amount), rows: make(map[row]*journal.Usage), lossy: make(map[string]bool)}
	for _, x := range b.settlements {
		if x.void {
			if err := x.settleHold(t); err != nil {
				return err
			}
			continue
		}
		key := x.call.StoreKey(journal.CallPrefix)
		var have journal.CallRecord
		if x.number > 1 || b.unknown {
			if have, _, err = journal.ReadCall(t, key); err != nil {
				return err
			}
			if have.Number >= x.number {
				b.readings[x.call.User] = nil
				continue // committed by a run with an unknown outcome
			}
		}
		if err := x.settleHold(t); err != nil {
			return err
		}
		if x.claim != nil {
			first, err := x.claim(t)
			if err != nil {
				return err
			}
			if !first {
				b.readings[x.call.User] = nil
				continue
			}
		}
		record := journal.CallRecord{Call: x.call, Number: x.number, Paid: have.Paid}
		f.count(x)
		for _, c := range x.changes {
			f.owed[c.source.account] += c.by
			record.Pay(journal.Payment{Transfer: b.id, Account: c.source.account.Own(), Amount: c.by})
			for _, a := range x.reservation.caps {
				f.owed[a.account] += c.by
			}
		}
		if err := t.Set(key, record.Encode(key), now.Add(kept.Kept)); err != nil {
			return err
		}
		switch {
		case !x.final:
			err = t.Set(x.call.StoreKey(journal.OpenCallPrefix), l.openCallValue(), time.Time{})
		case x.number > 1:
			err = t.Delete(x.call.StoreKey(journal.OpenCallPrefix))
		}
		if err != nil {
			return err
		}
	}
	if err := f.write(t, b.id, now); err != nil {
		return err
	}
	b.short = f.short
	for user := range b.readings {
		if b.readings[user], err = l.read(t, user); err != nil {
			return err
		}
	}
	return nil
}

// committed updates the balances in memory. It runs on the goroutine that commits.
func (b *batch) committed() {
	s := b.settler
	for _, x := range b.short {
		s.ledger.mismatches.Add(1)
		s.ledger.log.Error("an account has less than was promised", zap.String("account", string(x.account)),
			zap.Stringer("owed", x.owed), zap.Stringer("available", x.available))
	}
	var sum money.Amount
	for _, x := range b.settlements {
		x.end(true)
		for _, c := range x.changes {
			sum += c.by
		}
	}
	// Balances that were read after an earlier run may already include these settlements, so they
	// are installed from the store.
	for user, r := range b.readings {
		if p := s.ledger.cached(user); p != nil {
			p.install(r, nil)
		}
	}
	s.mu.Lock()
	s.atRisk -= sum
	s.mu.Unlock()
	for range b.settlements {
		<-s.slots
	}
}

// batchTotals sums up the changes of a batch by account and by day.
type batchTotals struct {
	owed  map[journal.Account]money.Amount
	rows  map[row]*journal.Usage
	lossy map[string]bool // users with calls that were not collected in full
	calls int
	short []shortage
}

// shortage is a debit that the balances allowed and that the account could not cover.
type shortage struct {
	account         journal.Account
	owed, available money.Amount
}

// row is the key of a [journal.Usage] as a comparable value.
type row struct {
	day              int64 // since 1970
	user, key, model string
}

// count adds the difference between a settlement and the previous settlements of the same call.
func (f *batchTotals) count(x *settlement) {
	c := &x.call
	model := c.CountedModel()
	at := row{c.Time / (24 * 60 * 60 * 1000), c.User, c.Key, model}
	u := f.rows[at]
	if u == nil {
		u = &journal.Usage{Day: c.Day(), User: c.User, Key: c.Key, Model: model}
		f.rows[at] = u
	}
	if c.Uncollected > x.before.Uncollected {
		f.lossy[c.User] = true
	}
	u.Add(journal.Usage{
		Calls: 1 - x.before.Calls, Tokens: c.Tokens.Minus(x.before.Tokens),
		Cost: c.Cost - x.before.Cost, Uncollected: c.Uncollected - x.before.Uncollected,
	})
	f.calls++
}

func (f *batchTotals) write(t storage.Txn, id journal.ID, now time.Time) error {
	x := journal.Transfer{ID: id, Kind: journal.Calls, Count: f.calls}
	var spent money.Amount
	for _, a := range slices.Sorted(maps.Keys(f.owed)) {
		owed := f.owed[a]
		if !a.Memo() {
			state, err := journal.ReadState(t, a)
			if err != nil {
				return err
			}
			// If the store has less than the balances promised, there is a bug. The user is not charged
			// below zero, and verification finds the call that paid more than was taken.
			if available := max(0, state.Available()); owed > available {
				f.short = append(f.short, shortage{a, owed, state.Available()})
				owed = available
			}
			spent += owed
		}
		x.Legs = append(x.Legs, journal.Leg{Account: a, Amount: -owed})
	}
	x.Legs = append(x.Legs, journal.Leg{Account: journal.Spent, Amount: spent})
	if len(x.Legs) > 1 {
		if _, err := journal.Book(t, now, x); err != nil {
			return err
		}
	}
	for _, u := range f.rows {
		if err := u.Count(t); err != nil {
			return err
		}
	}
	for user := range f.lossy {
		if err := markLossy(t, user, now); err != nil {
			return err
		}
	}
	return nil
}
