package ledger

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// The settler's bounds. A crash forgets what is queued: at most maxQueued
// settlements, none of them older than the store's gathering and one commit.
const (
	maxQueued = 4096 // whoever comes to a full queue waits
	maxBatch  = 512  // settlements in one transaction, small enough for every engine
)

// settler writes settlements, many at a time. One batch is under way at any
// moment, and settlements of one call stay in order.
type settler struct {
	ledger *Ledger
	slots  chan struct{} // a token for each settlement that is not durable
	kick   chan struct{} // a token when there is work
	ended  chan struct{} // closed when the settler has
	stop   chan struct{} // closed to end it
	once   sync.Once

	mu      sync.Mutex
	waiting []*settlement
	atRisk  money.Amount // charged by settlements that are not durable
	err     error        // of the last batch; nil when it was committed
}

// settlement is what one call owes at one moment.
type settlement struct {
	call        Call
	reservation *Reservation
	changes     []change
	number      int // of the call's settlements, from 1
	final       bool
	before      Usage // what the settlements before it have counted
}

func (s *settler) begin(l *Ledger) {
	s.ledger = l
	s.slots = make(chan struct{}, maxQueued)
	s.kick = make(chan struct{}, 1)
	s.ended = make(chan struct{})
	s.stop = make(chan struct{})
	go s.run()
}

// end waits until the queue is empty, or ctx ends, and ends the settler.
func (s *settler) end(ctx context.Context) {
	s.once.Do(func() { close(s.stop) })
	s.ledger.store.Hurry()
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

// put queues a settlement. A full queue makes it wait; only a store that has
// failed for good makes it forget.
func (s *settler) put(x *settlement) {
	select {
	case s.slots <- struct{}{}:
	case <-s.ledger.store.Failed():
		return
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, x)
	n := len(s.waiting)
	for _, c := range x.changes {
		s.atRisk += c.by
	}
	s.mu.Unlock()
	if n == maxBatch {
		s.ledger.store.Hurry()
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *settler) queued() (n int64, atRisk money.Amount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.slots)), s.atRisk
}

// failing returns why the last batch was not committed, or nil.
func (s *settler) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *settler) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) == 0
}

// full tells whether a batch is waiting that is as large as one can be.
func (s *settler) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) >= maxBatch
}

func (s *settler) run() {
	defer close(s.ended)
	for {
		for !s.empty() {
			if !s.commit(&batch{settler: s}) {
				return
			}
		}
		select {
		case <-s.kick:
		case <-s.stop:
			if s.empty() {
				return
			}
		}
	}
}

// retryEvery is how long the settler waits before it offers a batch again that
// the store did not take, for want of space.
const retryEvery = 250 * time.Millisecond

// commit writes one batch, as often as it takes. It returns false when the store
// has failed or was closed.
func (s *settler) commit(b *batch) bool {
	for {
		if s.full() {
			s.ledger.store.Hurry()
		}
		outcome := make(chan error, 1)
		err := s.ledger.store.Post(context.Background(), b.write, func(err error) {
			if err == nil {
				b.committed()
			}
			outcome <- err
		})
		if err == nil {
			err = <-outcome
		}
		s.mu.Lock()
		told := s.err != nil
		s.err = err
		s.mu.Unlock()
		switch {
		case err == nil:
			return true
		case errors.Is(err, storage.ErrStopped), errors.Is(err, storage.ErrClosed):
			s.ledger.log.Error("settlements are lost with the store", zap.Int("settlements", len(s.slots)), zap.Error(err))
			return false
		case errors.Is(err, storage.ErrUnknown):
			continue // write looks which of them are there
		case !passing(err):
			if b.split(); len(b.settlements) == 0 {
				return true
			}
			continue
		}
		if !told {
			s.ledger.log.Error("settlements wait for the store; no more calls are taken", zap.Error(err))
		}
		select {
		case <-time.After(retryEvery):
		case <-s.ledger.store.Failed():
		}
	}
}

// passing tells whether an error of the store goes away by itself, so that the
// same batch is to be offered again.
func passing(err error) bool {
	return errors.Is(err, storage.ErrLowSpace) || errors.Is(err, storage.ErrConflict)
}

// batch is what one transaction settles. It is drawn from the queue when the
// transaction runs for the first time, so that whatever gathered until then is
// in it, and stays the same when it runs again.
type batch struct {
	settler     *settler
	id          ID
	settlements []*settlement
	seen        map[string]*reading // what the users of settlements found committed have
}

func (b *batch) draw(now time.Time) {
	s := b.settler
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), maxBatch)
	b.settlements = append([]*settlement(nil), s.waiting[:n]...)
	clear(s.waiting[:n])
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	b.id = timedID(now)
}

// split makes a batch that the store refuses smaller, so that one settlement
// that cannot be written ends up alone, and is given up: it must not keep those
// of everybody else from being written. What it charged is the operator's loss,
// and an alarm.
func (b *batch) split() {
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
	s.ledger.log.Error("a settlement cannot be written and is given up", zap.String("request_id", x.call.ID),
		zap.String("user_id", x.call.User), zap.Stringer("cost", x.call.Cost), zap.Error(s.failing()))
	x.reservation.forgive(x.changes, x.final)
	b.settlements = nil
	s.mu.Lock()
	for _, c := range x.changes {
		s.atRisk -= c.by
	}
	s.mu.Unlock()
	<-s.slots
}

// write writes the records of the calls, one transfer for all of them, and what
// their days add up to.
func (b *batch) write(t storage.Txn) error {
	l := b.settler.ledger
	now := l.store.Now()
	again := b.settlements != nil
	if !again {
		b.draw(now)
	}
	b.seen = make(map[string]*reading)
	f := fold{owed: make(map[Account]money.Amount), rows: make(map[row]*Usage)}
	for _, x := range b.settlements {
		var have callRecord
		if x.number > 1 || again {
			if _, err := storage.GetRecord(t, x.call.key(), &have); err != nil {
				return err
			}
			if have.Number >= x.number {
				b.seen[x.call.User] = nil
				continue // committed by a run whose outcome was not known
			}
		}
		record := callRecord{Call: x.call, Number: x.number, Paid: have.Paid}
		f.count(x)
		for _, c := range x.changes {
			f.owed[c.pot.account] += c.by
			record.pay(payment{b.id, c.pot.account.own(), c.by})
			for _, a := range x.reservation.caps {
				f.owed[a.account] += c.by
			}
		}
		if err := t.Set(x.call.key(), record.encode(), now.Add(l.opts.CallsKept)); err != nil {
			return err
		}
		var err error
		switch {
		case !x.final:
			err = t.Set(x.call.keyUnder(openPrefix), nil, time.Time{})
		case x.number > 1:
			err = t.Delete(x.call.keyUnder(openPrefix))
		}
		if err != nil {
			return err
		}
	}
	if err := f.write(t, l, b.id, now); err != nil {
		return err
	}
	for user := range b.seen {
		var err error
		if b.seen[user], err = l.read(t, user); err != nil {
			return err
		}
	}
	return nil
}

// committed follows the batch in memory. It runs on the goroutine that commits.
func (b *batch) committed() {
	s := b.settler
	var sum money.Amount
	for _, x := range b.settlements {
		x.reservation.committed(x.changes, x.final)
		for _, c := range x.changes {
			sum += c.by
		}
	}
	// Since the run that committed them, purses may have been read with these
	// settlements in them.
	for user, r := range b.seen {
		if p := s.ledger.purses.find(user); p != nil {
			p.install(r)
		}
	}
	s.mu.Lock()
	s.atRisk -= sum
	s.mu.Unlock()
	for range b.settlements {
		<-s.slots
	}
}

// Settle charges a call what it has come to so far, as far as it was reserved,
// and queues its record: once at its end with final, and before in between where
// it takes long. It returns what is charged in all; the rest of cost is
// uncollected. It waits only while the queue is full.
func (r *Reservation) Settle(c Call, cost money.Amount, final bool) (charged money.Amount) {
	if r.ended {
		panic("ledger: a call is settled after its end")
	}
	x := &settlement{reservation: r, changes: r.charge(cost), final: final, before: r.counted}
	if r.ended = final; final {
		r.shrink(x.changes)
	}
	r.settlements++
	x.number = r.settlements
	c.Cost, c.Lost = r.charged, cost-r.charged
	x.call = c
	r.counted = Usage{Calls: 1, Tokens: c.Tokens, Cost: c.Cost, Lost: c.Lost}
	r.ledger.settler.put(x)
	return r.charged
}

// fold gathers what a batch does to each account and each day.
type fold struct {
	owed  map[Account]money.Amount
	rows  map[row]*Usage
	calls int
}

// row is where a call counts: that of Usage, cheaper to find.
type row struct {
	day              int64 // since 1970
	user, key, model string
}

// count adds what a settlement tells more than those before it.
func (f *fold) count(x *settlement) {
	c := &x.call
	model := c.countedModel()
	at := row{c.Time / (24 * 60 * 60 * 1000), c.User, c.Key, model}
	u := f.rows[at]
	if u == nil {
		u = &Usage{Day: c.day(), User: c.User, Key: c.Key, Model: model}
		f.rows[at] = u
	}
	u.add(Usage{
		Calls: 1 - x.before.Calls, Tokens: c.Tokens.Minus(x.before.Tokens),
		Cost: c.Cost - x.before.Cost, Lost: c.Lost - x.before.Lost,
	})
	f.calls++
}

func (f *fold) write(t storage.Txn, l *Ledger, id ID, now time.Time) error {
	x := Transfer{ID: id, Kind: Calls, Count: f.calls}
	var spent money.Amount
	for _, a := range slices.Sorted(maps.Keys(f.owed)) {
		owed := f.owed[a]
		if !a.memo() {
			state, err := ReadState(t, a)
			if err != nil {
				return err
			}
			if owed > max(0, state.Available()) {
				l.mismatch(a, owed, state)
				owed = max(0, state.Available())
			}
			spent += owed
		}
		x.Legs = append(x.Legs, Leg{Account: a, Amount: -owed})
	}
	x.Legs = append(x.Legs, Leg{Account: Spent, Amount: spent})
	if len(x.Legs) > 1 {
		if _, err := Book(t, now, x); err != nil {
			return err
		}
	}
	for _, u := range f.rows {
		var have Usage
		key := u.key()
		if _, err := storage.GetRecord(t, key, &have); err != nil {
			return err
		}
		have.Day, have.User, have.Key, have.Model = u.Day, u.User, u.Key, u.Model
		have.add(*u)
		if err := storage.SetRecord(t, key, have); err != nil {
			return err
		}
	}
	return nil
}

// mismatch tells of a debit that the store cannot cover though the purse had
// promised it. It is an error of ours: the customer is not charged below zero,
// and Verify will find the call that has paid more than was taken.
func (l *Ledger) mismatch(a Account, owed money.Amount, s State) {
	l.mismatches.Add(1)
	l.log.Error("an account has less than was promised", zap.String("account", string(a)),
		zap.Stringer("owed", owed), zap.Stringer("available", s.Available()))
}
