package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

const callers = 64

// concurrently runs fn once for each caller, each on its own goroutine.
func concurrently(fn func(caller int)) {
	var start, all sync.WaitGroup
	start.Add(callers)
	for caller := range callers {
		all.Go(func() {
			start.Done()
			start.Wait()
			fn(caller)
		})
	}
	all.Wait()
}

// checkNothingLeft reports an error if anything is open, reserved or not durable, or if
// verification finds a problem.
func (f *fixture) checkNothingLeft() {
	f.t.Helper()
	f.settled()
	stats := f.Stats()
	stats.CachedUsers = 0
	if stats != (Stats{}) {
		f.t.Errorf("left over: %+v", stats)
	}
	f.checkVerified()
}

func TestMoneyForSevenCallsPaysSevenCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 75)
	var admitted, refused atomic.Int64
	var reserved sync.WaitGroup
	reserved.Add(callers)
	concurrently(func(caller int) {
		r, err := f.Reserve(t.Context(), Payer{User: "ann"}, 10)
		reserved.Done()
		var shortfall *Shortfall
		switch {
		case errors.As(err, &shortfall):
			refused.Add(1)
			if shortfall.Available >= 10 || shortfall.Available%10 != 5 {
				t.Errorf("refused with %d available", shortfall.Available)
			}
			return
		case err != nil:
			t.Error(err)
			return
		}
		reserved.Wait() // no call settles before all have tried to reserve
		admitted.Add(1)
		if charged := r.Settle(aCall(f, fmt.Sprint("call", caller), "ann"), 10, true); charged != 10 {
			t.Errorf("charged %d", charged)
		}
	})
	if admitted.Load() != 7 || refused.Load() != callers-7 {
		t.Errorf("%d calls were admitted, %d refused", admitted.Load(), refused.Load())
	}
	f.checkNothingLeft()
	if w := f.wallet("ann"); w.Balance != 5 {
		t.Errorf("the wallet has %d", w.Balance)
	}
}

func TestConcurrentCallsPayExactlyTheirCharges(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 1000)
	var charged, refused atomic.Int64
	concurrently(func(caller int) {
		for n := range 20 {
			r, err := f.Reserve(t.Context(), Payer{User: "ann"}, 10)
			var shortfall *Shortfall
			if errors.As(err, &shortfall) {
				refused.Add(1)
				continue
			}
			if err != nil {
				t.Error(err)
				return
			}
			charged.Add(int64(r.Settle(aCall(f, fmt.Sprintf("call%d-%d", caller, n), "ann"), 4, true)))
		}
	})
	f.checkNothingLeft()
	if w := f.wallet("ann"); w.Balance != 1000-money.Amount(charged.Load()) || charged.Load() == 0 || refused.Load() == 0 {
		t.Errorf("of 1000, %d were charged and the wallet has %d; %d calls were refused", charged.Load(), w.Balance, refused.Load())
	}
}

// TestManyCallsAndPurchasesAtOnce runs calls, purchases and credits of one user at the same time,
// paid from a quota and the wallet and under budgets.
func TestManyCallsAndPurchasesAtOnce(t *testing.T) {
	t.Parallel()
	quota := journal.Quota("ann", 1, time.Unix(0, 0))
	f := newFixture(t, Options{Sources: func(storage.Txn, string) (Sources, error) {
		return Sources{Order: []journal.Account{quota, journal.Wallet("ann")}}, nil
	}})
	const begin, granted, rounds = 60_000, 5_000, 60
	f.credit("ann", begin)
	f.book("ann", nil, journal.Transfer{ID: journal.IDOf("grant"), Kind: journal.Grant, User: "ann", Legs: journal.LegsBetween(journal.Granted, quota, granted)})
	var charged, bought, credited atomic.Int64
	concurrently(func(caller int) {
		payer := Payer{User: "ann", Budgets: Budgets{{Scope: fmt.Sprint("key/", caller%5), Limit: money.Unit, Reset: calendar.Day}}}
		for n := range rounds {
			id := fmt.Sprintf("%d-%d", caller, n)
			switch n % 6 {
			case 4:
				bought.Add(int64(f.buy(id, 3)))
			case 5:
				credited.Add(2)
				f.book("ann", nil, journal.Transfer{ID: journal.IDOf("credit", id), Kind: journal.Credit, User: "ann", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("ann"), 2)})
			default:
				charged.Add(int64(f.someCall(payer, id, n%4)))
			}
		}
	})
	f.checkNothingLeft()
	state := journal.State{}
	f.change(func(tx storage.Txn) (err error) {
		state, err = journal.ReadState(tx, quota)
		return err
	})
	want := begin + granted + money.Amount(credited.Load()-charged.Load()-bought.Load())
	if have := f.wallet("ann").Balance + state.Balance; have != want || charged.Load() < granted {
		t.Errorf("of %d, %d were charged; %d are left, want %d", begin+granted, charged.Load(), have, want)
	}
}

// buy makes a purchase and returns the paid price, or zero if the purchase was refused.
func (f *fixture) buy(key string, price money.Amount) money.Amount {
	_, _, err := f.Once(f.t.Context(), "ann", IdempotencyKey{Scope: "ann", Key: key}, func() (*Reservation, error) {
		return f.ReserveWallet(f.t.Context(), "ann", price)
	}, func(tx *Txn) (any, error) {
		_, err := journal.Book(tx, f.clock.Now(), journal.Transfer{ID: journal.IDOf("buy", key), Kind: journal.Purchase, User: "ann", Legs: journal.LegsBetween(journal.Wallet("ann"), journal.Sold, price)})
		return "sold", err
	})
	var shortfall *Shortfall
	if errors.As(err, &shortfall) {
		return 0
	}
	if err != nil {
		f.t.Error(err)
	}
	return price
}

// someCall makes a call and returns its charge. By kind, the call is released, costs less than
// reserved, has several settlements, or costs more than reserved.
func (f *fixture) someCall(payer Payer, id string, kind int) (charged money.Amount) {
	r, err := f.Reserve(f.t.Context(), payer, 20)
	var shortfall *Shortfall
	if errors.As(err, &shortfall) {
		return 0
	}
	if err != nil {
		f.t.Error(err)
		return 0
	}
	c := aCall(f, id, payer.User)
	settle := func(cost money.Amount, ended usage.Ended) money.Amount {
		c.Ended = ended
		return r.Settle(c, cost, ended != "")
	}
	switch kind {
	case 0:
		r.Release()
	case 1:
		charged = settle(7, usage.Complete)
	case 2:
		settle(5, "")
		settle(20, "")
		charged = settle(11, usage.ClientGone)
	case 3:
		r.Grow(13)
		charged = settle(40, usage.MoneyOut)
		if charged != r.Amount() {
			f.t.Errorf("a call was charged %d of %d", charged, r.Amount())
		}
	}
	return charged
}

func TestCallsWhileBalancesAreDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	users := []string{"ann", "bob", "eve"}
	for _, user := range users {
		f.credit(user, 2000)
	}
	var charged [3]atomic.Int64
	stop := f.meanwhile(func() {
		f.clock.Advance(idle + time.Second)
		f.Sweep()
	})
	concurrently(func(caller int) {
		for n := range 30 {
			which := (caller + n) % len(users)
			charged[which].Add(int64(f.someCall(Payer{User: users[which]}, fmt.Sprintf("%d-%d", caller, n), n%4)))
		}
	})
	stop()
	f.checkNothingLeft()
	for i, user := range users {
		if w := f.wallet(user); w.Balance != 2000-money.Amount(charged[i].Load()) {
			t.Errorf("%s was charged %d of 2000 and has %d", user, charged[i].Load(), w.Balance)
		}
	}
	f.clock.Advance(idle + time.Second)
	f.Sweep()
	if n := f.Stats().CachedUsers; n != 0 {
		t.Errorf("the cache keeps %d idle balances", n)
	}
}

// meanwhile runs fn again and again until stop is called.
func (f *fixture) meanwhile(fn func()) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			fn()
			_ = f.store.Flush(ctx)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestCallsWhilePeriodsEnd gives each day a quota and a budget that are enough for a few calls,
// and makes calls while days pass.
func TestCallsWhilePeriodsEnd(t *testing.T) {
	t.Parallel()
	var f *fixture
	const daily = 100
	f = newFixture(t, Options{Sources: func(tx storage.Txn, user string) (Sources, error) {
		now := f.clock.Now()
		today := journal.Quota(user, 1, calendar.Day.Start(now))
		_, err := journal.Book(tx, now, journal.Transfer{ID: journal.IDOf(string(today)), Kind: journal.Grant, User: user, Legs: journal.LegsBetween(journal.Granted, today, daily)})
		return Sources{Order: []journal.Account{today}, Until: calendar.Day.Next(now)}, err
	}})
	payer := Payer{User: "ann", Budgets: Budgets{{Scope: "user", Limit: daily - 5, Reset: calendar.Day}}}
	var charged atomic.Int64
	concurrently(func(caller int) {
		for n := range 30 {
			charged.Add(int64(f.someCall(payer, fmt.Sprintf("%d-%d", caller, n), n%4)))
			if caller == 0 {
				f.clock.Advance(7 * time.Hour)
			}
		}
	})
	f.checkNothingLeft()
	// The spending of a day never exceeds its budget, even if calls are settled on a later day.
	var spent, days money.Amount
	f.change(func(tx storage.Txn) error {
		spent, days = 0, 0
		prefix := journal.AccountKey("u/ann/budget/")
		return tx.Scan(prefix, storage.PrefixEnd(prefix), func(key, val []byte) bool {
			s, err := journal.DecodeState(val)
			if err != nil || -s.Balance > daily-5 {
				t.Errorf("%s counts %d, %v", key, -s.Balance, err)
			}
			spent -= s.Balance
			days++
			return true
		})
	})
	if spent != money.Amount(charged.Load()) || days < 2 {
		t.Errorf("charged %d, but the budgets of %d days count %d", charged.Load(), days, spent)
	}
}
