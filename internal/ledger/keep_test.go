package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

const day = 24 * time.Hour

// purging is the engine in memory, but that it drops what may be dropped the
// moment that it may.
type purging struct {
	*memory.Engine
	now    func() time.Time
	mu     sync.Mutex
	purges map[string]time.Time // of the keys that have one
}

func (e *purging) View(ctx context.Context, fn func(storage.Reader) error) error {
	return e.Engine.View(ctx, func(r storage.Reader) error { return fn(unpurged{r, e}) })
}

func (e *purging) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return e.Engine.Update(ctx, func(t storage.Txn) error { return fn(purgingTxn{unpurged{t, e}, t}) })
}

func (e *purging) purge(key []byte) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.purges[string(key)]
}

// unpurged reads what has not been dropped.
type unpurged struct {
	storage.Reader
	engine *purging
}

func (r unpurged) dropped(key []byte) bool {
	purge := r.engine.purge(key)
	return !purge.IsZero() && !r.engine.now().Before(purge)
}

func (r unpurged) Get(key []byte) ([]byte, error) {
	if r.dropped(key) {
		return nil, nil
	}
	return r.Reader.Get(key)
}

func (r unpurged) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return r.Reader.Scan(lo, hi, func(key, val []byte) bool { return r.dropped(key) || fn(key, val) })
}

type purgingTxn struct {
	unpurged
	txn storage.Txn
}

func (t purgingTxn) Set(key, val []byte, purge time.Time) error {
	t.engine.mu.Lock()
	t.engine.purges[string(key)] = purge
	t.engine.mu.Unlock()
	return t.txn.Set(key, val, purge)
}

func (t purgingTxn) Delete(key []byte) error { return t.txn.Delete(key) }

// newPurging is a fixture over an engine that forgets.
func newPurging(t *testing.T) (*fixture, *purging) {
	t.Helper()
	c := storagetest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	engine := &purging{Engine: memory.New(), now: c.Now, purges: make(map[string]time.Time)}
	return newFixtureOver(t, engine, c, Options{}), engine
}

func (f *fixture) keepCalls(kept time.Duration) {
	f.t.Helper()
	if err := f.KeepCalls(f.t.Context(), kept); err != nil {
		f.t.Fatal(err)
	}
}

// listed returns the ids of the calls of ann, oldest first.
func (f *fixture) listed() (ids []string) {
	f.t.Helper()
	err := f.ScanCalls(f.t.Context(), "ann", CallFilter{}, func(c journal.CallRecord) bool {
		ids = append(ids, c.ID)
		return true
	})
	if err != nil {
		f.t.Fatal(err)
	}
	slices.Reverse(ids)
	return ids
}

func TestCallsAreReadOnlyUntilTheClientDisconnects(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	for _, id := range []string{"a", "b", "c"} {
		f.called(id, Payer{User: "ann"}, 0, 0)
	}
	ctx, disconnect := context.WithCancel(t.Context())
	read := 0
	err := f.ScanCalls(ctx, "ann", CallFilter{}, func(journal.CallRecord) bool {
		read++
		disconnect()
		return true
	})
	if read != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d calls are read: %v", read, err)
	}
}

func TestACallIsKeptForAsLongAsWasSaidWhenItWasWritten(t *testing.T) {
	t.Parallel()
	f, engine := newPurging(t)
	f.credit("ann", 100*money.Unit)
	for _, step := range []struct {
		id         string
		kept, want time.Duration // zero: nothing is said
	}{{"a", 0, journal.CallsKept}, {"b", 10 * day, 10 * day}, {"c", 0, 10 * day}, {"d", 400 * day, 400 * day}} {
		if step.kept != 0 {
			f.keepCalls(step.kept)
		}
		c := aCall(f, step.id, "ann")
		f.reserve(Payer{User: "ann"}, money.Unit).Settle(c, money.Unit, true)
		f.settled()
		if got := engine.purge(c.StoreKey(journal.CallPrefix)).Sub(f.clock.Now()); got != step.want {
			t.Errorf("call %s is kept for %v, not %v", step.id, got, step.want)
		}
	}
	// One that is under way is kept by what holds when it is settled next.
	long := f.reserve(Payer{User: "ann"}, 2*money.Unit)
	c := aCall(f, "e", "ann")
	c.Ended = ""
	long.Settle(c, money.Unit, false)
	f.settled()
	f.keepCalls(20 * day)
	l, err := Open(t.Context(), f.store, Options{}) // after a crash
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(t.Context())
	if got := engine.purge(c.StoreKey(journal.CallPrefix)).Sub(f.clock.Now()); got != 20*day {
		t.Errorf("a call that a crash left open is kept for %v", got)
	}
}

// TestVerifyKnowsWhichCallsAreGoneByWhatWasSaidOfThem lets months pass in which
// it is said again and again how long calls are kept, one call a day, and looks
// each day whether all that is not there is known to be gone.
func TestVerifyKnowsWhichCallsAreGoneByWhatWasSaidOfThem(t *testing.T) {
	t.Parallel()
	said := map[int]time.Duration{
		0: 30 * day, 40: 90 * day, 60: 200 * day, 75: 10 * day, 80: 3 * day, 90: 20 * day, 95: 60 * day, 100: 40 * day, 101: 400 * day, 250: 90 * day,
	}
	f, engine := newPurging(t)
	f.credit("ann", 1000*money.Unit)
	var written []journal.Call
	for today := range 300 {
		if kept := said[today]; kept != 0 {
			f.keepCalls(kept)
		}
		c := aCall(f, time.Duration(today).String(), "ann")
		f.reserve(Payer{User: "ann"}, money.Unit).Settle(c, money.Unit, true)
		f.settled()
		written = append(written, c)
		f.clock.Advance(time.Minute) // past the moment at which others go

		f.verified()
		from, err := f.CallsFrom(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, c := range written {
			if c.Time < from.UnixMilli() {
				continue
			}
			if want = append(want, c.ID); !engine.purge(c.StoreKey(journal.CallPrefix)).After(f.clock.Now()) {
				t.Fatalf("on day %d call %s is gone, and calls are said to be there from %v on", today, c.ID, from)
			}
		}
		if got := f.listed(); !slices.Equal(got, want) {
			t.Fatalf("on day %d %v are listed, not %v", today, got, want)
		}
		f.clock.Advance(day - time.Minute)
	}
	if n := len(f.listed()); n != 90 {
		t.Errorf("in the end %d calls are listed", n)
	}
	// What must be there is still missed.
	f.change(func(tx storage.Txn) error { return tx.Delete(written[len(written)-30].StoreKey(journal.CallPrefix)) })
	if problems, _ := f.verify(); len(problems) != 2 {
		t.Errorf("of a call that was taken away it said %q", problems)
	}
}

func TestALedgerThatDoesNotTellHowLongCallsAreKeptIsNotOpened(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.change(func(tx storage.Txn) error { return tx.Set([]byte("meta/calls"), []byte{9}, time.Time{}) })
	if _, err := Open(t.Context(), f.store, Options{}); err == nil || !strings.Contains(err.Error(), "meta/calls") {
		t.Errorf("it was opened: %v", err)
	}
}

func TestHowLongCallsAreKeptIsWrittenDownWhereItIsNotTheUsual(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	now := f.clock.Now()
	for _, step := range []struct {
		kept, pass time.Duration
		want       journal.Keeping
	}{
		{journal.CallsKept, 0, journal.Keeping{Kept: journal.CallsKept}},
		{30 * day, 0, journal.Keeping{Kept: 30 * day}},
		{30 * day, day, journal.Keeping{Kept: 30 * day}},
		{60 * day, 0, journal.Keeping{Kept: 60 * day, Before: []journal.Shorter{{Until: now.Add(day).UnixMilli(), Kept: 30 * day}}}},
		{90 * day, 61 * day, journal.Keeping{Kept: 90 * day, Before: []journal.Shorter{{Until: now.Add(day).UnixMilli(), Kept: 30 * day}, {Until: now.Add(day).UnixMilli(), Kept: 60 * day}}}},
		{100 * day, 0, journal.Keeping{Kept: 100 * day, Before: []journal.Shorter{
			{Until: now.Add(day).UnixMilli(), Kept: 30 * day}, {Until: now.Add(day).UnixMilli(), Kept: 60 * day}, {Until: now.Add(62 * day).UnixMilli(), Kept: 90 * day},
		}}},
		{40 * day, 0, journal.Keeping{Kept: 40 * day}},
	} {
		f.keepCalls(step.kept)
		err := f.store.View(t.Context(), func(r storage.Reader) error {
			val, err := r.Get([]byte("meta/calls"))
			if step.kept == journal.CallsKept && step.want.Before == nil && val != nil {
				t.Errorf("the usual is written down: %q", val)
			}
			if err != nil {
				return err
			}
			got, err := journal.ReadKeeping(r)
			if got.Kept != step.want.Kept || !slices.Equal(got.Before, step.want.Before) {
				t.Errorf("kept for %v it is %+v, not %+v", step.kept, got, step.want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(step.pass)
	}
}
