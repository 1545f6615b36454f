package ledger

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/ledger/verify"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// inWorld runs a test in a world whose ann has money, and looks in the end
// whether everything adds up.
func inWorld(t *testing.T, amount money.Amount, fn func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		w.transact("a credit", journal.Transfer{ID: w.id(), Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("ann"), amount)})
		fn(t, w)
		var problems []verify.Problem
		w.view(func(r storage.Reader) error {
			_, err := verify.Verify(t.Context(), r, time.Now(), func(p verify.Problem) { problems = append(problems, p) })
			return err
		})
		if w.err != nil || len(problems) > 0 {
			t.Errorf("%v, Verify found %v", w.err, problems)
		}
	})
}

func (w *world) wallet(user string) (s journal.State) {
	w.view(func(r storage.Reader) (err error) {
		s, err = journal.ReadState(r, journal.Wallet(user))
		return err
	})
	return s
}

// settleMany settles calls of ann that cost 1, each on a goroutine, and counts
// those that have been taken.
func (w *world) settleMany(t *testing.T, n int) (taken *atomic.Int64) {
	t.Helper()
	taken = new(atomic.Int64)
	for i := range n {
		r, err := w.ledger.Reserve(t.Context(), Payer{User: "ann"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		c := journal.Call{ID: fmt.Sprint("call", i), User: "ann", Key: "k", Model: "m", Time: time.Now().UnixMilli(), Ended: "complete"}
		go func() {
			r.Settle(c, 1, true)
			taken.Add(1)
		}()
	}
	synctest.Wait()
	return taken
}

func TestAFullQueueMakesCallersWait(t *testing.T) {
	t.Parallel()
	const calls = maxQueued + 900
	inWorld(t, calls, func(t *testing.T, w *world) {
		if r, err := w.ledger.Reserve(t.Context(), Payer{User: "ann"}, 1); err != nil {
			t.Fatal(err)
		} else {
			r.Release() // from now on the balances is there
		}
		w.gate.set(true)
		taken := w.settleMany(t, calls)
		stats := w.ledger.Stats()
		if taken.Load() != maxQueued || stats.Queued != maxQueued || stats.AtRisk != maxQueued {
			t.Errorf("the queue has taken %d settlements: %+v", taken.Load(), stats)
		}
		w.gate.set(false)
		w.settle()
		synctest.Wait()
		w.settle()
		if stats := w.ledger.Stats(); taken.Load() != calls || stats != (Stats{CachedUsers: 1}) {
			t.Errorf("in the end %d were taken, and the figures are %+v", taken.Load(), stats)
		}
		if s := w.wallet("ann"); s.Balance != 0 {
			t.Errorf("the wallet has %d", s.Balance)
		}
	})
}

func TestAStoreThatFailsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	const calls = maxQueued + 900
	inWorld(t, calls, func(t *testing.T, w *world) {
		if r, err := w.ledger.Reserve(t.Context(), Payer{User: "ann"}, 1); err != nil {
			t.Fatal(err)
		} else {
			r.Release()
		}
		w.gate.set(true)
		taken := w.settleMany(t, calls)
		w.faulty.Plan(storagetest.Halted)
		w.gate.set(false)
		synctest.Wait()
		if taken.Load() != calls {
			t.Errorf("%d of %d callers have gone on", taken.Load(), calls)
		}
		if _, err := w.ledger.Reserve(t.Context(), Payer{User: "ann"}, 1); codeOf(err) != fault.StoreUnavailable {
			t.Errorf("a call was answered %v", err)
		}
		w.crash()
		if s := w.wallet("ann"); s.Balance != calls {
			t.Errorf("what was never written has cost something: the wallet has %d", s.Balance)
		}
	})
}

func TestAStoreWithoutSpaceTakesNoCallsUntilItHasSpace(t *testing.T) {
	t.Parallel()
	inWorld(t, 10, func(t *testing.T, w *world) {
		ann := Payer{User: "ann"}
		first, err := w.ledger.Reserve(t.Context(), ann, 6)
		if err != nil {
			t.Fatal(err)
		}
		w.faulty.Plan(storagetest.LowSpace, storagetest.LowSpace, storagetest.LowSpace)
		first.Settle(journal.Call{ID: "a", User: "ann", Key: "k", Model: "m", Ended: "complete"}, 5, true)
		synctest.Wait()
		_, err = w.ledger.Reserve(t.Context(), ann, 1)
		var f *fault.Fault
		if !errors.As(err, &f) || f.Code != fault.StoreUnavailable || f.RetryAfter == 0 {
			t.Errorf("without space a call was answered %v", err)
		}
		// A purchase is refused as well, and leaves nothing behind.
		if err := w.ledger.Update(t.Context(), "ann", nil, func(*Txn) error { return nil }); codeOf(err) != fault.StoreUnavailable {
			t.Errorf("without space a change was answered %v", err)
		}
		if stats := w.ledger.Stats(); stats.Queued != 1 || stats.AtRisk != 5 || stats.Reserved != 5 {
			t.Errorf("while it waits: %+v", stats)
		}
		time.Sleep(4 * retryEvery)
		synctest.Wait()
		if stats := w.ledger.Stats(); stats != (Stats{CachedUsers: 1}) {
			t.Errorf("afterwards: %+v", stats)
		}
		if r, err := w.ledger.Reserve(t.Context(), ann, 5); err != nil {
			t.Error(err)
		} else {
			r.Release()
		}
		if s := w.wallet("ann"); s.Balance != 5 {
			t.Errorf("the wallet has %d", s.Balance)
		}
	})
}

func codeOf(err error) fault.Code {
	var f *fault.Fault
	if !errors.As(err, &f) {
		return ""
	}
	return f.Code
}
