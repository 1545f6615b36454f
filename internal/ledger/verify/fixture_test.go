package verify

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// fixture is a ledger over a store, with its own clock.
type fixture struct {
	*ledger.Ledger
	t     testing.TB
	store *storage.Store
	clock *storagetest.Clock
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newFixtureOver(t, memory.New())
}

// newFixtureOver returns a fixture over the given engine.
func newFixtureOver(t testing.TB, engine storage.Engine) *fixture {
	t.Helper()
	c := storagetest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := storage.New(engine, storage.Options{Clock: c.Now, Gather: -1})
	l, err := ledger.Open(t.Context(), store, ledger.Options{})
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
	f.book(user, nil, journal.Transfer{
		ID: journal.TimedID(f.clock.Now()), Kind: journal.Credit, User: user,
		Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), amount),
	})
}

// settled waits until everything queued is durable.
func (f *fixture) settled() {
	f.t.Helper()
	for f.Stats().Queued > 0 {
		if err := f.store.Flush(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}

func aCall(f *fixture, id, user string) journal.Call {
	return journal.Call{
		ID: id, Time: f.clock.Now().UnixMilli(), User: user, Key: "key_1", Model: "m", Route: "messages",
		Ended: usage.Complete, Usage: usage.Reported, Tokens: usage.Tokens{Input: 3, Output: 5},
	}
}

// verify returns the problems that Verify finds, one line each, and its report.
func (f *fixture) verify() (problems []string, report Report) {
	f.t.Helper()
	err := f.store.View(f.t.Context(), func(r storage.Reader) (err error) {
		report, err = Verify(f.t.Context(), r, f.clock.Now(), func(p Problem) {
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
func (f *fixture) checkVerified() Report {
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
func (f *fixture) book(user string, r *ledger.Reservation, x journal.Transfer) {
	f.t.Helper()
	err := f.Update(f.t.Context(), user, r, func(t *ledger.Txn) error {
		_, err := journal.Book(t, f.clock.Now(), x)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) reserve(payer ledger.Payer, amount money.Amount) *ledger.Reservation {
	f.t.Helper()
	r, err := f.Reserve(f.t.Context(), payer, amount)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// onBadger returns a fixture over a new Badger store in a directory.
func onBadger(t testing.TB, dir string) *fixture {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	module := &badger.Badger{Path: dir}
	if err := module.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	engine, err := module.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return newFixtureOver(t, engine)
}
