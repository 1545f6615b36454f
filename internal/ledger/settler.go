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

// The settler's limits. A crash loses the queued settlements: at most maxQueued, none older than
// the store's gather time and one commit.
const (
	maxQueued = 4096 // if the queue is full, a call waits
	maxBatch  = 1024 // settlements in one transaction, small enough for every engine
)

// settler writes settlements in batches, one batch at a time. The settlements of one call stay in
// order.
type settler struct {
	ledger *Ledger
	slots  chan struct{} // a token for each settlement that is not durable
	wake   chan struct{} // a token when there is work
	ended  chan struct{} // closed when the settler has stopped
	stop   chan struct{} // closed to stop the settler
	once   sync.Once

	mu      sync.Mutex
	waiting []*settlement
	atRisk  money.Amount // charged by settlements that are not durable
	err     error        // temporary error of the store that settlements wait for, or nil
}

// settlement is what a call has cost at one time.
type settlement struct {
	call        journal.Call
	reservation *Reservation
	changes     []change
	number      int // among the call's settlements, from 1
	final       bool
	void        bool                            // the call ends without a settlement and releases its hold
	before      journal.Usage                   // counted by the previous settlements of the call
	claim       func(storage.Txn) (bool, error) // see [Reservation.SettleOnce]; nil: none
}

// end updates the balances when the settlement is durable, or when it is dropped.
func (x *settlement) end(paid bool) {
	if !x.void {
		x.reservation.end(x.changes, x.final, paid)
	}
}

func (s *settler) begin(l *Ledger) {
	s.ledger = l
	s.slots = make(chan struct{}, maxQueued)
	s.wake = make(chan struct{}, 1)
	s.ended = make(chan struct{})
	s.stop = make(chan struct{})
	go s.run()
}

// end waits until the queue is empty or ctx ends, and stops the settler.
func (s *settler) end(ctx context.Context) {
	s.once.Do(func() { close(s.stop) })
	s.ledger.store.CommitNow()
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
		s.ledger.store.CommitNow()
	}
	select {
	case s.wake <- struct{}{}:
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

// pending returns the number of settlements that are in no batch yet.
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
		case <-s.wake:
		case <-s.stop:
			if s.pending() == 0 {
				return
			}
		}
	}
}

// retryEvery is how long the settler waits before it retries a batch after a temporary error of
// the store.
const retryEvery = 250 * time.Millisecond

// commit writes one batch and retries until it is written. It returns false if the store has
// failed or was closed.
func (s *settler) commit(b *batch) bool {
	for {
		if s.pending() >= maxBatch {
			s.ledger.store.CommitNow()
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
		waited := s.waitFor(err)
		switch {
		case err == nil:
			return true
		case errors.Is(err, storage.ErrStopped), errors.Is(err, storage.ErrClosed):
			s.ledger.log.Error("settlements are lost because the store has failed or was closed", zap.Int("settlements", len(s.slots)), zap.Error(err))
			return false
		case errors.Is(err, storage.ErrUnknown):
			b.unknown = true // write detects which settlements were committed
			continue
		case !isTemporary(err):
			if b.split(err); len(b.settlements) == 0 {
				return true
			}
			continue
		}
		if !waited {
			s.ledger.log.Error("settlements wait for the store; new calls are refused", zap.Error(err))
		}
		select {
		case <-time.After(retryEvery):
		case <-s.ledger.store.Failed():
		}
	}
}

// waitFor sets the error that settlements wait for, if err is temporary, or clears it. It returns
// whether settlements waited before. While they wait, new calls are refused.
func (s *settler) waitFor(err error) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.err != nil
	if s.err = nil; isTemporary(err) {
		s.err = err
	}
	return before
}

// isTemporary reports whether an error of the store is temporary, so that the same batch is
// retried.
func isTemporary(err error) bool {
	return errors.Is(err, storage.ErrLowSpace) || errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrUnreachable)
}

// Settle charges a call its cost so far, at most the reserved amount, and queues its record. It is
// called once with final at the end of the call, and before that at intervals if the call is long.
// It returns the total charge. The rest of cost is added to c.Uncollected. Settle blocks only
// while the queue is full.
func (r *Reservation) Settle(c journal.Call, cost money.Amount, final bool) (charged money.Amount) {
	return r.settle(c, cost, final, nil)
}

// SettleOnce is the only settlement of a call that may be settled again after a crash. Claim runs in
// the transaction that writes the record. It removes the mark by which a restart would settle the call,
// and returns false if there is none: then the call was settled before, and nothing is charged.
func (r *Reservation) SettleOnce(c journal.Call, cost money.Amount, claim func(storage.Txn) (bool, error)) (charged money.Amount) {
	return r.settle(c, cost, true, claim)
}

func (r *Reservation) settle(c journal.Call, cost money.Amount, final bool, claim func(storage.Txn) (bool, error)) money.Amount {
	if r.ended {
		panic("ledger: a call is settled after its end")
	}
	x := &settlement{reservation: r, changes: r.charge(cost), final: final, before: r.counted, claim: claim}
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
