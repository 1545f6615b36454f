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

// withModel runs a test on a model in which ann has amount. At the end the store must be
// consistent.
func withModel(t *testing.T, amount money.Amount, fn func(*testing.T, *model)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		defer m.stop()
		m.transact("a credit", journal.Transfer{ID: m.id(), Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("ann"), amount)})
		fn(t, m)
		var problems []verify.Problem
		m.view(func(r storage.Reader) error {
			_, err := verify.Verify(t.Context(), r, time.Now(), func(p verify.Problem) { problems = append(problems, p) })
			return err
		})
		if m.err != nil || len(problems) > 0 {
			t.Errorf("the model reports %v, Verify found %v", m.err, problems)
		}
	})
}

func (m *model) wallet(user string) (s journal.State) {
	m.view(func(r storage.Reader) (err error) {
		s, err = journal.ReadState(r, journal.Wallet(user))
		return err
	})
	return s
}

// settleMany settles n calls of ann that cost 1, each on a goroutine, and returns the number of
// settlements that were queued so far.
func (m *model) settleMany(t *testing.T, n int) (queued *atomic.Int64) {
	t.Helper()
	queued = new(atomic.Int64)
	for i := range n {
		r, err := m.ledger.Reserve(t.Context(), Payer{User: "ann"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		c := journal.Call{ID: fmt.Sprint("call", i), User: "ann", Key: "k", Model: "m", Time: time.Now().UnixMilli(), Ended: "complete"}
		go func() {
			r.Settle(c, 1, true)
			queued.Add(1)
		}()
	}
	synctest.Wait()
	return queued
}

func TestAFullQueueMakesCallersWait(t *testing.T) {
	t.Parallel()
	const calls = maxQueued + 900
	withModel(t, calls, func(t *testing.T, m *model) {
		if r, err := m.ledger.Reserve(t.Context(), Payer{User: "ann"}, 1); err != nil {
			t.Fatal(err)
		} else {
			r.Release() // the balances are cached from now on
		}
		m.gate.set(true)
		queued := m.settleMany(t, calls)
		stats := m.ledger.Stats()
		if queued.Load() != maxQueued || stats.Queued != maxQueued || stats.AtRisk != maxQueued {
			t.Errorf("%d settlements are queued: %+v", queued.Load(), stats)
		}
		m.gate.set(false)
		m.waitUntilDurable()
		synctest.Wait()
		m.waitUntilDurable()
		if stats := m.ledger.Stats(); queued.Load() != calls || stats != (Stats{CachedUsers: 1}) {
			t.Errorf("at the end %d settlements were queued, and the stats are %+v", queued.Load(), stats)
		}
		if s := m.wallet("ann"); s.Balance != 0 {
			t.Errorf("the wallet has %d", s.Balance)
		}
	})
}

func TestAFailedStoreReleasesTheWaitingCallers(t *testing.T) {
	t.Parallel()
	const calls = maxQueued + 900
	withModel(t, calls, func(t *testing.T, m *model) {
		if r, err := m.ledger.Reserve(t.Context(), Payer{User: "ann"}, 1); err != nil {
			t.Fatal(err)
		} else {
			r.Release()
		}
		m.gate.set(true)
		queued := m.settleMany(t, calls)
		m.faulty.Plan(storagetest.Halted)
		m.gate.set(false)
		synctest.Wait()
		if queued.Load() != calls {
			t.Errorf("%d of %d callers were released", queued.Load(), calls)
		}
		if _, err := m.ledger.Reserve(t.Context(), Payer{User: "ann"}, 1); codeOf(err) != fault.StoreUnavailable {
			t.Errorf("after the failure, Reserve returned %v", err)
		}
		m.crash()
		if s := m.wallet("ann"); s.Balance != calls {
			t.Errorf("lost settlements were charged: the wallet has %d", s.Balance)
		}
	})
}

func TestNoCallsAreAdmittedWhileTheStoreHasNoSpace(t *testing.T) {
	t.Parallel()
	withModel(t, 10, func(t *testing.T, m *model) {
		ann := Payer{User: "ann"}
		first, err := m.ledger.Reserve(t.Context(), ann, 6)
		if err != nil {
			t.Fatal(err)
		}
		m.faulty.Plan(storagetest.LowSpace, storagetest.LowSpace, storagetest.LowSpace)
		first.Settle(journal.Call{ID: "a", User: "ann", Key: "k", Model: "m", Ended: "complete"}, 5, true)
		synctest.Wait()
		_, err = m.ledger.Reserve(t.Context(), ann, 1)
		var f *fault.Fault
		if !errors.As(err, &f) || f.Code != fault.StoreUnavailable || f.RetryAfter == 0 {
			t.Errorf("without space, Reserve returned %v", err)
		}
		// A purchase is refused as well.
		if err := m.ledger.Update(t.Context(), "ann", nil, func(*Txn) error { return nil }); codeOf(err) != fault.StoreUnavailable {
			t.Errorf("without space, Update returned %v", err)
		}
		if stats := m.ledger.Stats(); stats.Queued != 1 || stats.AtRisk != 5 || stats.Reserved != 5 {
			t.Errorf("while the settlement waits, the stats are %+v", stats)
		}
		time.Sleep(4 * retryEvery)
		synctest.Wait()
		if stats := m.ledger.Stats(); stats != (Stats{CachedUsers: 1}) {
			t.Errorf("after the store has space, the stats are %+v", stats)
		}
		if r, err := m.ledger.Reserve(t.Context(), ann, 5); err != nil {
			t.Error(err)
		} else {
			r.Release()
		}
		if s := m.wallet("ann"); s.Balance != 5 {
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
