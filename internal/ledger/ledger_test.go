package ledger

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/ledger/verify"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// fixture is a ledger over a store, with its own clock.
type fixture struct {
	*Ledger
	t     testing.TB
	store *storage.Store
	clock *storagetest.Clock
}

func newFixture(t testing.TB, opts Options) *fixture {
	t.Helper()
	return newFixtureOver(t, memory.New(), storagetest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), opts)
}

// newFixtureOver returns a fixture over the given engine.
func newFixtureOver(t testing.TB, engine storage.Engine, c *storagetest.Clock, opts Options) *fixture {
	t.Helper()
	store := storage.New(engine, storage.Options{Clock: c.Now, Gather: -1})
	l, err := Open(t.Context(), store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close(context.Background())
		store.Close()
	})
	return &fixture{l, t, store, c}
}

// credit credits a user's wallet, as an operator does.
func (f *fixture) credit(user string, amount money.Amount) {
	f.t.Helper()
	err := f.Update(f.t.Context(), user, nil, func(t *Txn) error {
		_, err := journal.Book(t, f.clock.Now(), journal.Transfer{
			ID: journal.TimedID(f.clock.Now()), Kind: journal.Credit, User: user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), amount),
		})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// settled waits until everything queued is durable.
func (f *fixture) settled() {
	f.t.Helper()
	for {
		if n, _ := f.settler.queued(); n == 0 {
			return
		}
		if err := f.store.Flush(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) wallet(user string) journal.State {
	f.t.Helper()
	funds, err := f.Funds(f.t.Context(), user)
	if err != nil {
		f.t.Fatal(err)
	}
	return funds.Wallet
}

func aCall(f *fixture, id, user string) journal.Call {
	return journal.Call{
		ID: id, Time: f.clock.Now().UnixMilli(), User: user, Key: "key_1", Model: "m", Route: "messages",
		Ended: usage.Complete, Usage: usage.Reported, Tokens: usage.Tokens{Input: 3, Output: 5},
	}
}

// verify returns the problems that Verify finds, one line each, and its report.
func (f *fixture) verify() (problems []string, report verify.Report) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) (err error) {
		report, err = verify.Verify(f.t.Context(), r, f.clock.Now(), func(p verify.Problem) {
			problems = append(problems, p.Where+": "+p.What)
		})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if report.Problems != int64(len(problems)) {
		f.t.Fatalf("the report counts %d problems, there are %d", report.Problems, len(problems))
	}
	return problems, report
}

// checkVerified fails the test if Verify finds a problem.
func (f *fixture) checkVerified() verify.Report {
	f.t.Helper()
	problems, report := f.verify()
	if len(problems) > 0 {
		f.t.Fatalf("Verify found:\n%s", strings.Join(problems, "\n"))
	}
	return report
}

// change runs a transaction on the store without the ledger.
func (f *fixture) change(fn func(storage.Txn) error) {
	f.t.Helper()
	if err := f.store.Update(f.t.Context(), fn); err != nil {
		f.t.Fatal(err)
	}
}

// book books a transfer for a user.
func (f *fixture) book(user string, r *Reservation, x journal.Transfer) {
	f.t.Helper()
	err := f.Update(f.t.Context(), user, r, func(t *Txn) error {
		_, err := journal.Book(t, f.clock.Now(), x)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) reserve(payer Payer, amount money.Amount) *Reservation {
	f.t.Helper()
	r, err := f.Reserve(f.t.Context(), payer, amount)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

func TestACallPaysWhatItCostAndReleasesTheRest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 10)
	r, err := f.Reserve(t.Context(), Payer{User: "ann"}, 7)
	if err != nil {
		t.Fatal(err)
	}
	var shortfall *Shortfall
	if _, err := f.Reserve(t.Context(), Payer{User: "ann"}, 4); !errors.As(err, &shortfall) || shortfall.Available != 3 {
		t.Fatalf("with 3 left, a reservation of 4 returned %v", err)
	}
	if charged := r.Settle(aCall(f, "a", "ann"), 5, true); charged != 5 {
		t.Fatalf("charged %d", charged)
	}
	f.settled()
	if w := f.wallet("ann"); w.Balance != 5 {
		t.Fatalf("the wallet has %d", w.Balance)
	}
	if r, err = f.Reserve(t.Context(), Payer{User: "ann"}, 5); err != nil {
		t.Fatal(err)
	}
	r.Release()
	if s := f.Stats(); s.Open != 0 || s.Reserved != 0 || s.AtRisk != 0 || s.Mismatches != 0 {
		t.Fatalf("left over: %+v", s)
	}
}

func TestTheFinalSettlementCorrectsTheIntermediateCharge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 10)
	payer := Payer{User: "ann", Budgets: Budgets{{Scope: "key/1", Limit: 8, Reset: calendar.Month}}}
	r, err := f.Reserve(t.Context(), payer, 8)
	if err != nil {
		t.Fatal(err)
	}
	open := aCall(f, "a", "ann")
	open.Ended = ""
	r.Settle(open, 6, false)
	f.settled()
	if w := f.wallet("ann"); w.Balance != 4 {
		t.Fatalf("after the intermediate settlement the wallet has %d", w.Balance)
	}
	var shortfall *Shortfall
	if _, err := f.Reserve(t.Context(), payer, 1); !errors.As(err, &shortfall) || shortfall.Budget != "key/1" || shortfall.Available != 0 {
		t.Fatalf("with an exhausted budget, Reserve returned %v", err)
	}
	r.Settle(aCall(f, "a", "ann"), 3, true)
	f.settled()
	if w := f.wallet("ann"); w.Balance != 7 {
		t.Fatalf("after the final settlement the wallet has %d", w.Balance)
	}
	if used, _, err := f.BudgetUsed(t.Context(), "ann", payer.Budgets[0]); err != nil || used != 3 {
		t.Fatalf("the budget counts %d, %v", used, err)
	}
	if r, err = f.Reserve(t.Context(), payer, 5); err != nil {
		t.Fatal(err)
	}
	r.Release()
}

func TestBalancesAreReadAgainAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	var f *fixture
	f = newFixture(t, Options{Sources: func(_ storage.Txn, user string) (Sources, error) {
		if f != nil && f.clock.Now().Year() > 2027 {
			return Sources{}, nil // the user's sources have ended
		}
		return Sources{Order: []journal.Account{journal.Wallet(user)}}, nil
	}})
	f.credit("ann", 10)
	const years = 2 * 366 * 24 * time.Hour
	f.clock.Advance(years)
	var shortfall *Shortfall
	f.balanceCache.forget("ann")
	if _, err := f.Reserve(t.Context(), Payer{User: "ann"}, 5); !errors.As(err, &shortfall) {
		t.Fatalf("without sources, Reserve returned %v", err)
	}
	f.clock.Advance(-years)
	r, err := f.Reserve(t.Context(), Payer{User: "ann"}, 5)
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
}
