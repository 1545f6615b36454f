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

// together runs fn on as many goroutines as there are callers, all at once.
func together(fn func(caller int)) {
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

// nothingLeft fails the test when anything is open, reserved or not durable, or
// does not add up.
func (f *fixture) nothingLeft() {
	f.t.Helper()
	f.settled()
	stats := f.Stats()
	stats.CachedUsers = 0
	if stats != (Stats{}) {
		f.t.Errorf("left over: %+v", stats)
	}
	f.verified()
}

func TestMoneyForSevenCallsPaysSevenCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 75)
	var let, refused atomic.Int64
	var reserved sync.WaitGroup
	reserved.Add(callers)
	together(func(caller int) {
		r, err := f.Reserve(t.Context(), Payer{User: "ann"}, 10)
		reserved.Done()
		var short *Short
		switch {
		case errors.As(err, &short):
			refused.Add(1)
			if short.Available >= 10 || short.Available%10 != 5 {
				t.Errorf("refused with %d available", short.Available)
			}
			return
		case err != nil:
			t.Error(err)
			return
		}
		reserved.Wait() // nothing is settled before all have asked
		let.Add(1)
		if charged := r.Settle(aCall(f, fmt.Sprint("call", caller), "ann"), 10, true); charged != 10 {
			t.Errorf("charged %d", charged)
		}
	})
	if let.Load() != 7 || refused.Load() != callers-7 {
		t.Errorf("%d calls were let in, %d refused", let.Load(), refused.Load())
	}
	f.nothingLeft()
	if w := f.wallet("ann"); w.Balance != 5 {
		t.Errorf("the wallet has %d", w.Balance)
	}
}

func TestWhoeverIsLetInPaysExactlyWhatHeIsCharged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 1000)
	var charged, refused atomic.Int64
	together(func(caller int) {
		for n := range 20 {
			r, err := f.Reserve(t.Context(), Payer{User: "ann"}, 10)
			var short *Short
			if errors.As(err, &short) {
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
	f.nothingLeft()
	if w := f.wallet("ann"); w.Balance != 1000-money.Amount(charged.Load()) || charged.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d were charged and %d calls refused, of 1000 the wallet has %d", charged.Load(), refused.Load(), w.Balance)
	}
}

// TestManyCallsAndPurchasesAtOnce has calls of every kind beside purchases,
// credits and holds of one user, from a quota and the wallet and under budgets.
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
	together(func(caller int) {
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
	f.nothingLeft()
	state := journal.State{}
	f.change(func(tx storage.Txn) (err error) {
		state, err = journal.ReadState(tx, quota)
		return err
	})
	want := begin + granted + money.Amount(credited.Load()-charged.Load()-bought.Load())
	if have := f.wallet("ann").Balance + state.Balance; have != want || charged.Load() < granted {
		t.Errorf("of %d, after %d charged, %d is left, not %d", begin+granted, charged.Load(), have, want)
	}
}

// buy buys something for a price, or is refused, and returns what it has paid.
func (f *fixture) buy(key string, price money.Amount) money.Amount {
	_, _, err := f.Once(f.t.Context(), "ann", IdempotencyKey{Scope: "ann", Key: key}, func() (*Reservation, error) {
		return f.ReserveWallet(f.t.Context(), "ann", price)
	}, func(tx *Txn) (any, error) {
		_, err := journal.Book(tx, f.clock.Now(), journal.Transfer{ID: journal.IDOf("buy", key), Kind: journal.Purchase, User: "ann", Legs: journal.LegsBetween(journal.Wallet("ann"), journal.Sold, price)})
		return "sold", err
	})
	var short *Short
	if errors.As(err, &short) {
		return 0
	}
	if err != nil {
		f.t.Error(err)
	}
	return price
}

// someCall makes a call that is released, costs less than reserved, takes long, or
// costs more, and returns what it was charged.
func (f *fixture) someCall(payer Payer, id string, kind int) (charged money.Amount) {
	r, err := f.Reserve(f.t.Context(), payer, 20)
	var short *Short
	if errors.As(err, &short) {
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

func TestBalancesThatAreDroppedMeanwhile(t *testing.T) {
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
	together(func(caller int) {
		for n := range 30 {
			which := (caller + n) % len(users)
			charged[which].Add(int64(f.someCall(Payer{User: users[which]}, fmt.Sprintf("%d-%d", caller, n), n%4)))
		}
	})
	stop()
	f.nothingLeft()
	for i, user := range users {
		if w := f.wallet(user); w.Balance != 2000-money.Amount(charged[i].Load()) {
			t.Errorf("%s was charged %d of 2000, and has %d", user, charged[i].Load(), w.Balance)
		}
	}
	f.clock.Advance(idle + time.Second)
	f.Sweep()
	if n := f.Stats().CachedUsers; n != 0 {
		t.Errorf("%d balanceCache are kept that nobody uses", n)
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

// TestPeriodsThatEndMeanwhile has a quota and a budget of each day, which are
// enough for a few calls only, while days go by.
func TestPeriodsThatEndMeanwhile(t *testing.T) {
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
	together(func(caller int) {
		for n := range 30 {
			charged.Add(int64(f.someCall(payer, fmt.Sprintf("%d-%d", caller, n), n%4)))
			if caller == 0 {
				f.clock.Advance(7 * time.Hour)
			}
		}
	})
	f.nothingLeft()
	// No day gave more than its budget, whatever day its calls were settled on.
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
		t.Errorf("%d were charged, the budgets of %d days count %d", charged.Load(), days, spent)
	}
}
