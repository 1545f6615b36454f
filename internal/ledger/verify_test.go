package ledger

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// verify returns what Verify finds, one line each.
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

// verified fails the test when anything does not add up.
func (f *fixture) verified() Report {
	f.t.Helper()
	problems, report := f.verify()
	if len(problems) > 0 {
		f.t.Fatalf("Verify found:\n%s", strings.Join(problems, "\n"))
	}
	return report
}

// change runs a transaction past the ledger.
func (f *fixture) change(fn func(storage.Txn) error) {
	f.t.Helper()
	if err := f.store.Update(f.t.Context(), fn); err != nil {
		f.t.Fatal(err)
	}
}

// book books a transfer for a user.
func (f *fixture) book(user string, r *Reservation, x Transfer) {
	f.t.Helper()
	err := f.Update(f.t.Context(), user, r, func(t *Txn) error {
		_, err := Book(t, f.clock.Now(), x)
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

func TestVerifyFindsNothingInAGoodStore(t *testing.T) {
	t.Parallel()
	report := newHistory(t).verified()
	report.Took = 0
	want := Report{Accounts: 10, Entries: 25, Transfers: 14, Calls: 5, Holds: 3, IdempotencyKeys: 1, Users: 2}
	if report != want {
		t.Errorf("it looked at %+v, not at %+v", report, want)
	}
	if _, empty := newFixture(t, Options{}).verify(); empty.Accounts != 0 {
		t.Errorf("in an empty store it looked at %+v", empty)
	}
}

func TestVerifyKnowsThatOldCallsAreGone(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	// The engine drops old records of calls at a time of its own choice.
	forget := func(id string) {
		f.change(func(tx storage.Txn) error { return tx.Delete(call(callPrefix, id)) })
	}
	f.clock.pass(CallsKept - 12*time.Hour)
	forget("a")
	f.verified()
	r := f.reserve(history, 3*money.Unit)
	c := aCall(f, "z", "ann")
	r.Settle(c, money.Unit, true)
	f.settled()
	f.verified()
	f.clock.pass(CallsKept)
	f.change(func(tx storage.Txn) error { return tx.Delete(c.key()) })
	forget("b")
	f.verified()
}

func TestVerifyKnowsThatALongCallTellsItsFirstPaymentsTogether(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	began := f.clock.Now()
	r := f.reserve(history, 2*maxPaid*money.Unit)
	c := aCall(f, "z", "ann")
	for n := range money.Amount(2 * maxPaid) {
		if c.Ended = ""; n == 2*maxPaid-1 {
			c.Ended = usage.Complete
		}
		r.Settle(c, n*money.Unit, c.Ended != "")
		f.settled()
		f.clock.pass(time.Minute)
	}
	f.verified()
	// What is not relied on any more ends in the midst of the call.
	ends := began.Add(maxPaid * time.Minute)
	f.clock.pass(ends.Add(CallsKept - keptMargin).Sub(f.clock.Now()))
	f.verified()
	f.change(func(tx storage.Txn) error {
		damage{tx, t}.call(c.key(), func(c *callRecord) { c.Paid[0].Transfer = extra })
		return nil
	})
	if problems, _ := f.verify(); len(problems) != 1 || !strings.Contains(problems[0], "which is missing") {
		t.Errorf("of a payment by no transfer it said %q", problems)
	}
}

func TestVerifyEndsWithItsContextAndWithAReadThatFails(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	// run counts the reads of a Verify, and does something before one of them.
	run := func(ctx context.Context, which int, then func() error) (reads int, err error) {
		err = f.store.View(t.Context(), func(r storage.Reader) error {
			_, err := Verify(ctx, watched{r, func() error {
				if reads++; reads == which {
					return then()
				}
				return nil
			}}, f.clock.Now(), func(p Problem) { t.Error(p) })
			return err
		})
		return reads, err
	}
	all, err := run(t.Context(), 0, nil)
	if err != nil || all < 15 {
		t.Fatalf("%d reads, %v", all, err)
	}
	broken := errors.New("broken")
	for which := 1; which <= all; which++ {
		if _, err := run(t.Context(), which, func() error { return broken }); !errors.Is(err, broken) {
			t.Errorf("read %d of %d failed, Verify returned %v", which, all, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := run(ctx, which, func() error {
			cancel()
			return nil
		})
		if which < all && !errors.Is(err, context.Canceled) {
			t.Errorf("the context ended before read %d of %d, Verify returned %v", which, all, err)
		}
	}
}

// watched is a reader that asks before every read.
type watched struct {
	storage.Reader
	before func() error
}

func (w watched) Get(key []byte) ([]byte, error) {
	if err := w.before(); err != nil {
		return nil, err
	}
	return w.Reader.Get(key)
}

func (w watched) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	if err := w.before(); err != nil {
		return err
	}
	return w.Reader.Scan(lo, hi, fn)
}

func TestVerifyRunsTheChecksOfOthers(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	broken := errors.New("broken")
	var got []Problem
	var report Report
	err := f.store.View(t.Context(), func(r storage.Reader) (err error) {
		report, err = Verify(t.Context(), r, f.clock.Now(), func(p Problem) { got = append(got, p) },
			func(r storage.Reader, problem func(Problem)) error {
				if val, err := r.Get(idempotencyKeyOf); err != nil || val == nil {
					t.Errorf("a check reads %q, %v", val, err)
				}
				problem(Problem{"plan 1", "nobody sells it"})
				return nil
			},
			func(storage.Reader, func(Problem)) error { return broken },
			func(storage.Reader, func(Problem)) error {
				t.Error("a check ran after one that failed")
				return nil
			})
		return err
	})
	if !errors.Is(err, broken) || report.Problems != 1 || len(got) != 1 || got[0].Where != "plan 1" {
		t.Errorf("%v, %+v, %v", got, report, err)
	}
}
