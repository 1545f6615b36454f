package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// The settler's bounds. A crash forgets what is queued: at most maxQueued
// settlements, none of them older than the store's gathering and one commit.
const (
	maxQueued = 4096 // a call that comes to a full queue waits
	maxBatch  = 1024 // settlements in one transaction, small enough for every engine
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
	err     error        // what settlements wait for; nil when they do not
}

// settlement is what a call owes at one moment.
type settlement struct {
	call        journal.Call
	reservation *Reservation
	changes     []change
	number      int // of the call's settlements, from 1
	final       bool
	before      journal.Usage // what the settlements before it have counted
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

// put queues a settlement. It waits while the queue is full, and drops the settlement only if
// the store has failed for good.
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

// failing returns the error of the store that settlements wait for, or nil.
func (s *settler) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// pending returns how many settlements are in no batch yet.
func (s *settler) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

func (s *settler) run() {
	defer close(s.ended)
	for {
		for s.pending() > 0 {
			if !s.commit(&batch{settler: s}) {
				return
			}
		}
		select {
		case <-s.kick:
		case <-s.stop:
			if s.pending() == 0 {
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
		if s.pending() >= maxBatch {
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
		told := s.waitFor(err)
		switch {
		case err == nil:
			return true
		case errors.Is(err, storage.ErrStopped), errors.Is(err, storage.ErrClosed):
			s.ledger.log.Error("settlements are lost with the store", zap.Int("settlements", len(s.slots)), zap.Error(err))
			return false
		case errors.Is(err, storage.ErrUnknown):
			continue // write looks which of them are there
		case !passing(err):
			if b.split(err); len(b.settlements) == 0 {
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

// waitFor notes whether settlements wait for an error of the store to go away,
// and returns whether they did before. While they do, no more calls are taken.
func (s *settler) waitFor(err error) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.err != nil
	if s.err = nil; passing(err) {
		s.err = err
	}
	return before
}

// passing reports whether an error of the store goes away by itself, so that the
// same batch is to be offered again.
func passing(err error) bool {
	return errors.Is(err, storage.ErrLowSpace) || errors.Is(err, storage.ErrConflict)
}

// Settle charges a call what it has come to so far, as far as it was reserved,
// and queues its record: once at its end with final, and before in between where
// it takes long. It returns what is charged in all; the rest of cost is
// uncollected, as is what c says to be lost beyond cost. It waits only while the
// queue is full.
func (r *Reservation) Settle(c journal.Call, cost money.Amount, final bool) (charged money.Amount) {
	if r.ended {
		panic("ledger: a call is settled after its end")
	}
	x := &settlement{reservation: r, changes: r.charge(cost), final: final, before: r.counted}
	c.Cost, c.Uncollected = r.charged, c.Uncollected+cost-r.charged
	if r.ended = final; final {
		r.shrink(x.changes, &c)
	}
	r.settlements++
	x.number = r.settlements
	x.call = c
	r.counted = journal.Usage{Calls: 1, Tokens: c.Tokens, Cost: c.Cost, Uncollected: c.Uncollected}
	r.ledger.settler.put(x)
	return r.charged
}
