package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestNodesEmptyOneWallet(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		const funds, highest = 500, 7
		c.credit("ann", funds)
		var charged atomic.Int64
		var callers sync.WaitGroup
		for i := range 24 {
			callers.Go(func() {
				for cost := i % highest; ; cost = (cost*5 + 3) % (highest + 1) {
					r, err := c.nodes[i%3].Reserve(t.Context(), ann, highest)
					if err != nil {
						if _, short := errors.AsType[*Shortfall](err); !short {
							t.Error(err)
						}
						return
					}
					time.Sleep(time.Duration(10*cost) * time.Millisecond)
					if cost == 1 {
						r.Release()
						continue
					}
					charged.Add(int64(r.Settle(c.call("ann", usage.Complete), money.Amount(cost), true)))
				}
			})
		}
		callers.Wait()
		time.Sleep(time.Second)
		left := money.Amount(funds - charged.Load())
		if left >= highest || left < 0 {
			t.Errorf("%d is left although a call needs only %d", left, highest)
		}
		c.checkWallet("ann", left, 0)
		if left > 0 { // the last unit can be spent at any node
			c.checkRefused(1, ann, left+1, &Shortfall{Needed: left + 1, Available: left})
			c.reserve(2, ann, left).Settle(c.call("ann", usage.Complete), left, true)
			time.Sleep(time.Second)
		}
		c.checkWallet("ann", 0, 0)
		if err := c.nodes[0].CheckFunds(t.Context(), ann); err == nil {
			t.Error("CheckFunds finds money in an empty wallet")
		}
		if c.nodes[0].waits.Load() == 0 {
			t.Error("OnReserve was not called")
		}
		for i, n := range c.nodes {
			if s := n.Stats(); s.Open != 0 || s.Reserved != 0 || s.Queued != 0 || s.AtRisk != 0 || s.Mismatches != 0 {
				t.Errorf("the figures of node %d at the end: %+v", i, s)
			}
		}
	})
}

func TestBudgetsHoldAcrossNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		c.credit("ann", 1000)
		p := Payer{User: "ann", Budgets: Budgets{KeyBudget("1", 100, calendar.Never)}}
		var granted [3][]*Reservation
		var callers sync.WaitGroup
		for i := range c.nodes {
			callers.Go(func() {
				for range 3 {
					if r, err := c.nodes[i].Reserve(t.Context(), p, 30); err == nil {
						granted[i] = append(granted[i], r)
					}
				}
			})
		}
		callers.Wait()
		if n := len(granted[0]) + len(granted[1]) + len(granted[2]); n != 3 {
			t.Errorf("%d calls of 30 were granted under a budget of 100", n)
		}
		c.checkRefused(0, p, 11, &Shortfall{Needed: 11, Available: 10, Budget: "key/1"})
		for _, all := range granted {
			for _, r := range all {
				r.Settle(c.call("ann", usage.Complete), 20, true)
			}
		}
		time.Sleep(time.Second)
		c.checkRefused(2, p, 41, &Shortfall{Needed: 41, Available: 40, Budget: "key/1"})
		c.reserve(1, p, 40)
	})
}

func TestALongCallIsChargedFromItsHold(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		c.credit("ann", 100)
		r, call := c.reserve(0, ann, 60), c.call("ann", "")
		r.Settle(call, 25, false)
		time.Sleep(time.Second)
		c.checkWallet("ann", 75, 35)
		if got, short := r.Grow(50); got != 40 || short == nil {
			t.Errorf("grow by 50 gave %d, %v; 40 were available", got, short)
		}
		c.checkWallet("ann", 75, 75)
		c.checkRefused(1, ann, 1, &Shortfall{Needed: 1})
		r.Settle(call, 90, false)
		r.Settle(call, 70, false) // a corrected report
		time.Sleep(time.Second)
		c.checkWallet("ann", 30, 30)
		call.Ended = usage.Complete
		if charged := r.Settle(call, 65, true); charged != 65 {
			t.Errorf("charged %d, want 65", charged)
		}
		time.Sleep(time.Second)
		c.checkWallet("ann", 35, 0)
	})
}

func TestADeadNodeLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		c.credit("ann", 1000)
		dead := c.nodes[0] // the one that leads
		durable, queued := c.reserve(0, ann, 10), c.reserve(0, ann, 20)
		long, silent, released := c.reserve(0, ann, 40), c.reserve(0, ann, 80), c.reserve(0, ann, 160)
		durable.Settle(c.call("ann", usage.Complete), 5, true)
		running := c.call("ann", "")
		long.Settle(running, 15, false)
		time.Sleep(time.Second)
		c.checkWallet("ann", 980, 285)
		dead.line.Cut(true)
		queued.Settle(c.call("ann", usage.Complete), 20, true) // lost, as in a crash
		long.Settle(running, 30, false)
		released.Release()
		if got, _ := silent.Grow(1); got != 0 {
			t.Errorf("a node without its store granted %d", got)
		}
		other := c.reserve(1, ann, 7)
		time.Sleep(6 * time.Second)
		c.checkWallet("ann", 980, 7)
		var calls []string
		err := c.nodes[1].ScanCalls(t.Context(), "ann", CallFilter{}, func(r journal.CallRecord) bool {
			calls = append(calls, fmt.Sprintf("%d %s", r.Cost, r.Ended))
			return true
		})
		if got := strings.Join(calls, ", "); err != nil || got != "5 complete, 15 crash" && got != "15 crash, 5 complete" {
			t.Errorf("the calls of the dead node: %s, %v", got, err)
		}
		if err := c.nodes[2].EndEpoch(t.Context(), dead.store.Epoch()); err != nil {
			t.Errorf("ending an epoch again: %v", err)
		}
		if err := c.nodes[2].EndEpoch(t.Context(), c.nodes[1].store.Epoch()); err == nil {
			t.Error("an epoch was cleared up that has not ended")
		}
		c.checkWallet("ann", 980, 7)

		dead.line.Cut(false) // it wakes up, and may charge nothing
		long.Settle(running, 40, true)
		time.Sleep(time.Second)
		if !errors.Is(dead.store.Err(), storage.ErrFenced) {
			t.Errorf("the store of the ended node has %v, want ErrFenced", dead.store.Err())
		}
		c.checkWallet("ann", 980, 7)
		other.Settle(c.call("ann", usage.Complete), 7, true)
		time.Sleep(time.Second)
		c.checkWallet("ann", 973, 0)
	})
}

func TestAHoldThatCannotBeReadDoesNotKeepOthers(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		c.credit("ann", 100)
		c.reserve(0, ann, 60)
		time.Sleep(time.Second)
		damaged := journal.CallHold{User: "aaa", Epoch: c.nodes[0].store.Epoch(), Number: 1} // is read before that of ann
		change := func(fn func(t storage.Txn, key []byte) error) {
			if err := c.nodes[1].store.Update(t.Context(), func(t storage.Txn) error { return fn(t, damaged.StoreKey()) }); err != nil {
				t.Fatal(err)
			}
		}
		c.damaged.Store(true)
		change(func(t storage.Txn, key []byte) error { return t.Set(key, []byte("x"), time.Time{}) })
		c.nodes[0].line.Cut(true)
		time.Sleep(6 * time.Second)
		c.checkWallet("ann", 100, 0)
		change(func(t storage.Txn, key []byte) error { return t.Delete(key) })
		c.damaged.Store(false)
		time.Sleep(6 * time.Second)
	})
}

func TestANodeThatStartsLeavesTheCallsOfOthersOpen(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		c.credit("ann", 100)
		r, call := c.reserve(0, ann, 60), c.call("ann", "")
		r.Settle(call, 25, false)
		time.Sleep(time.Second)
		c.start(Options{})
		c.checkWallet("ann", 75, 35)
		call.Ended = usage.Complete
		r.Settle(call, 60, true)
		time.Sleep(time.Second)
		c.checkWallet("ann", 40, 0)
	})
}

// buy buys something for price at a node.
func (c *cluster) buy(node int, key string, price money.Amount) (replayed bool, err error) {
	n := c.nodes[node]
	_, replayed, err = n.Once(context.Background(), "ann", IdempotencyKey{Scope: "ann", Key: key}, func() (*Reservation, error) {
		return n.ReserveWallet(context.Background(), "ann", price)
	}, func(t *Txn) (any, error) {
		_, err := journal.Book(t, time.Now(), journal.Transfer{
			ID: journal.TimedID(time.Now()), Kind: journal.Purchase, User: "ann", Legs: journal.LegsBetween(journal.Wallet("ann"), journal.Sold, price), Reference: key,
		})
		return price, err
	})
	return replayed, err
}

func TestPurchasesOfNodesAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key                    func(node int) string
		bought, replayed, poor int64
	}{
		"with one key":        {func(int) string { return "k" }, 1, 2, 0},
		"with their own keys": {func(node int) string { return fmt.Sprint(node) }, 1, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			onNodes(t, func(t *testing.T, nodes *cluster) {
				nodes.credit("ann", 100)
				nodes.reserve(2, ann, 30) // a call under way
				var bought, replayed, poor atomic.Int64
				var buyers sync.WaitGroup
				for i := range nodes.nodes {
					buyers.Go(func() {
						again, err := nodes.buy(i, c.key(i), 60)
						short, is := errors.AsType[*Shortfall](err)
						switch {
						case is && *short == Shortfall{Needed: 60, Available: 10}:
							poor.Add(1)
						case err != nil:
							t.Error(err)
						case again:
							replayed.Add(1)
						default:
							bought.Add(1)
						}
					})
				}
				buyers.Wait()
				if bought.Load() != c.bought || replayed.Load() != c.replayed || poor.Load() != c.poor {
					t.Errorf("%d bought, %d replayed, %d refused, want %d, %d, %d", bought.Load(), replayed.Load(), poor.Load(), c.bought, c.replayed, c.poor)
				}
				nodes.checkWallet("ann", 40, 30)
			})
		})
	}
}

func TestHoldsAndCallsOfNodesShareAWallet(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		c.credit("ann", 100)
		p := Payer{User: "ann", Budgets: Budgets{UserBudget(90, calendar.Never)}}
		submit := func(node int, amount money.Amount) (id journal.ID, err error) {
			n := c.nodes[node]
			r, err := n.ReserveHold(t.Context(), p, amount)
			if err != nil {
				return id, err
			}
			id = journal.TimedID(time.Now())
			return id, n.Update(t.Context(), "ann", r, func(tx *Txn) error { return r.Hold(tx, time.Now(), "ann", id, "task") })
		}
		id, err := submit(0, 50)
		if err != nil {
			t.Fatal(err)
		}
		call := c.reserve(1, p, 30)
		if _, err := submit(2, 11); err == nil {
			t.Error("a task was accepted beyond the budget")
		}
		c.checkRefused(2, p, 11, &Shortfall{Needed: 11, Available: 10, Budget: "user"})
		if r, err := c.nodes[2].ReserveUpTo(t.Context(), "ann", 50); err != nil {
			t.Error(err)
		} else if err := c.nodes[2].Update(t.Context(), "ann", r, func(tx *Txn) error {
			if err := r.Confirm(tx); err != nil || r.Amount() != 20 {
				t.Errorf("reserved %d up to 50, %v; 20 are there", r.Amount(), err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		call.Settle(c.call("ann", usage.Complete), 30, true)
		err = c.nodes[1].Update(t.Context(), "ann", nil, func(tx *Txn) error {
			_, err := journal.EndHold(tx, time.Now(), journal.Usage{User: "ann", Key: "key_1", Model: "m"}, id, 45)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		c.checkWallet("ann", 25, 0)
	})
}

func TestALossyUserMakesOneCallAtATimeInTheCluster(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		c.credit("ann", 100*money.Unit)
		p := Payer{User: "ann", Tolerance: MaxTolerance / 100}
		c.reserve(0, p, money.Unit).Settle(c.call("ann", usage.Complete), 2*money.Unit, true)
		time.Sleep(2 * time.Second)
		c.checkRefused(1, p, money.Unit, ErrFullContext)
		p.FullContext = true
		running := c.reserve(1, p, money.Unit)
		c.checkRefused(2, p, money.Unit, ErrOneAtATime)
		running.Release()
		time.Sleep(time.Second)
		c.reserve(2, p, money.Unit)
		if r, err := c.nodes[0].Restriction(t.Context(), "ann", p.Tolerance); err != nil || r.Uncollected != money.Unit {
			t.Errorf("the restriction is %+v, %v", r, err)
		}
	})
}

func TestALoneStoreEndsTheCallsOfNodes(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, c *cluster) {
		c.credit("ann", 100)
		p := Payer{User: "ann", Budgets: Budgets{UserBudget(90, calendar.Never)}}
		c.reserve(0, p, 20)
		c.reserve(1, p, 60).Settle(c.call("ann", ""), 25, false)
		time.Sleep(time.Second)
		var copied bytes.Buffer
		if err := c.open().Backup(t.Context(), &copied); err != nil {
			t.Fatal(err)
		}
		lone := memory.New()
		if err := lone.Restore(t.Context(), &copied); err != nil {
			t.Fatal(err)
		}
		f := newFixtureOver(t, lone, storagetest.NewClock(time.Now()), Options{})
		f.checkVerified()
		if s := f.wallet("ann"); s.Balance != 75 || s.Reserved != 0 {
			t.Errorf("the copied wallet has %d with %d reserved, want 75 with 0", s.Balance, s.Reserved)
		}
		r, err := f.Reserve(t.Context(), p, 65)
		if err != nil {
			t.Fatal(err)
		}
		r.Settle(aCall(f, "req_lone", "ann"), 65, true)
		f.settled()
		f.checkVerified()
		c.checkWallet("ann", 75, 55)
	})
}
