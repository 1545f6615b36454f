package verify

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestVerifyFindsNoProblemInAConsistentStore(t *testing.T) {
	t.Parallel()
	report := newHistory(t).checkVerified()
	report.Took = 0
	want := Report{Accounts: 10, Entries: 25, Transfers: 14, Calls: 5, Holds: 3, IdempotencyKeys: 1, Users: 2}
	if report != want {
		t.Errorf("the report is %+v, want %+v", report, want)
	}
	if _, empty := newFixture(t).verify(); empty.Accounts != 0 {
		t.Errorf("the report of an empty store is %+v", empty)
	}
}

func TestVerifyToleratesExpiredCalls(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	// The engine drops an expired call at any time after its end.
	forget := func(id string) {
		f.change(func(tx storage.Txn) error { return tx.Delete(call(journal.CallPrefix, id)) })
	}
	f.clock.Advance(journal.DefaultRetention - 12*time.Hour)
	forget("a")
	f.checkVerified()
	r := f.reserve(history, 3*money.Unit)
	c := aCall(f, "z", "ann")
	r.Settle(c, money.Unit, true)
	f.settled()
	f.checkVerified()
	f.clock.Advance(journal.DefaultRetention)
	f.change(func(tx storage.Txn) error { return tx.Delete(c.StoreKey(journal.CallPrefix)) })
	forget("b")
	f.checkVerified()
}

func TestVerifyToleratesMergedPaymentsOfALongCall(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	began := f.clock.Now()
	r := f.reserve(history, 2*journal.MaxPaid*money.Unit)
	c := aCall(f, "z", "ann")
	for n := range money.Amount(2 * journal.MaxPaid) {
		if c.Ended = ""; n == 2*journal.MaxPaid-1 {
			c.Ended = usage.Complete
		}
		r.Settle(c, n*money.Unit, c.Ended != "")
		f.settled()
		f.clock.Advance(time.Minute)
	}
	f.checkVerified()
	// The retention now ends in the middle of the call.
	ends := began.Add(journal.MaxPaid * time.Minute)
	f.clock.Advance(ends.Add(journal.DefaultRetention - keptMargin).Sub(f.clock.Now()))
	f.checkVerified()
	f.change(func(tx storage.Txn) error {
		damage{tx, t}.call(c.StoreKey(journal.CallPrefix), func(c *journal.CallRecord) { c.Paid[0].Transfer = extra })
		return nil
	})
	if problems, _ := f.verify(); len(problems) != 1 || !strings.Contains(problems[0], "which is missing") {
		t.Errorf("for a payment by a missing transfer, Verify reports %q", problems)
	}
}

func TestVerifyReturnsErrorsOfReadsAndOfItsContext(t *testing.T) {
	t.Parallel()
	f := newHistory(t)
	// run counts the reads of Verify, and calls then before the read with number which.
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

// watched is a reader that calls before ahead of each read.
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

func TestVerifyRunsFurtherChecks(t *testing.T) {
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
				problem(Problem{"plan 1", "not on sale"})
				return nil
			},
			func(storage.Reader, func(Problem)) error { return broken },
			func(storage.Reader, func(Problem)) error {
				t.Error("a check ran after a failed check")
				return nil
			})
		return err
	})
	if !errors.Is(err, broken) || report.Problems != 1 || len(got) != 1 || got[0].Where != "plan 1" {
		t.Errorf("%v, %+v, %v", got, report, err)
	}
}
