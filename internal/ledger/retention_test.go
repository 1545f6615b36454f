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

// purging is the engine in memory, but it drops each key as soon as its purge time is reached.
type purging struct {
	*memory.Engine
	now    func() time.Time
	mu     sync.Mutex
	purges map[string]time.Time // purge times of keys
}

func (e *purging) View(ctx context.Context, fn func(storage.Reader) error) error {
	return e.Engine.View(ctx, func(r storage.Reader) error { return fn(purgedReader{r, e}) })
}

func (e *purging) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return e.Engine.Update(ctx, func(t storage.Txn) error { return fn(purgingTxn{purgedReader{t, e}, t}) })
}

func (e *purging) purge(key []byte) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.purges[string(key)]
}

// purgedReader reads the keys that have not been dropped.
type purgedReader struct {
	storage.Reader
	engine *purging
}

func (r purgedReader) dropped(key []byte) bool {
	purge := r.engine.purge(key)
	return !purge.IsZero() && !r.engine.now().Before(purge)
}

func (r purgedReader) Get(key []byte) ([]byte, error) {
	if r.dropped(key) {
		return nil, nil
	}
	return r.Reader.Get(key)
}

func (r purgedReader) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return r.Reader.Scan(lo, hi, func(key, val []byte) bool { return r.dropped(key) || fn(key, val) })
}

type purgingTxn struct {
	purgedReader
	txn storage.Txn
}

func (t purgingTxn) Set(key, val []byte, purge time.Time) error {
	t.engine.mu.Lock()
	t.engine.purges[string(key)] = purge
	t.engine.mu.Unlock()
	return t.txn.Set(key, val, purge)
}

func (t purgingTxn) Delete(key []byte) error { return t.txn.Delete(key) }

// newPurgingFixture returns a fixture over a purging engine.
func newPurgingFixture(t *testing.T) (*fixture, *purging) {
	t.Helper()
	c := storagetest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	engine := &purging{Engine: memory.New(), now: c.Now, purges: make(map[string]time.Time)}
	return newFixtureOver(t, engine, c, Options{}), engine
}

func (f *fixture) keepCalls(kept time.Duration) {
	f.t.Helper()
	if err := f.SetCallRetention(f.t.Context(), kept); err != nil {
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

func TestScanCallsStopsWhenTheClientDisconnects(t *testing.T) {
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

func TestACallHasTheRetentionOfTheTimeWhenItWasWritten(t *testing.T) {
	t.Parallel()
	f, engine := newPurgingFixture(t)
	f.credit("ann", 100*money.Unit)
	for _, step := range []struct {
		id         string
		kept, want time.Duration // zero: not changed
	}{{"a", 0, journal.DefaultRetention}, {"b", 10 * day, 10 * day}, {"c", 0, 10 * day}, {"d", 400 * day, 400 * day}} {
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
	// A running call gets the retention of its next settlement.
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
		t.Errorf("a call that a crash left open is kept for %v, want 20 days", got)
	}
}

// TestExpiredCallsAreNotReportedAsMissing makes one call a day for months and changes the
// retention several times. On each day, all calls since CallsFrom must exist, and verification
// must not miss the expired ones.
func TestExpiredCallsAreNotReportedAsMissing(t *testing.T) {
	t.Parallel()
	retentions := map[int]time.Duration{
		0: 30 * day, 40: 90 * day, 60: 200 * day, 75: 10 * day, 80: 3 * day, 90: 20 * day, 95: 60 * day, 100: 40 * day, 101: 400 * day, 250: 90 * day,
	}
	f, engine := newPurgingFixture(t)
	f.credit("ann", 1000*money.Unit)
	var written []journal.Call
	for today := range 300 {
		if kept := retentions[today]; kept != 0 {
			f.keepCalls(kept)
		}
		c := aCall(f, time.Duration(today).String(), "ann")
		f.reserve(Payer{User: "ann"}, money.Unit).Settle(c, money.Unit, true)
		f.settled()
		written = append(written, c)
		f.clock.Advance(time.Minute) // past the purge time of earlier calls

		f.checkVerified()
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
				t.Fatalf("on day %d call %s has expired, but CallsFrom is %v", today, c.ID, from)
			}
		}
		if got := f.listed(); !slices.Equal(got, want) {
			t.Fatalf("on day %d %v are listed, want %v", today, got, want)
		}
		f.clock.Advance(day - time.Minute)
	}
	if n := len(f.listed()); n != 90 {
		t.Errorf("in the end %d calls are listed, want 90", n)
	}
	// A deleted call that has not expired is reported.
	f.change(func(tx storage.Txn) error { return tx.Delete(written[len(written)-30].StoreKey(journal.CallPrefix)) })
	if problems, _ := f.verify(); len(problems) != 2 {
		t.Errorf("for a deleted call Verify reports %q", problems)
	}
}

func TestALedgerWithUnreadableRetentionIsNotOpened(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.change(func(tx storage.Txn) error { return tx.Set([]byte("meta/calls"), []byte{9}, time.Time{}) })
	if _, err := Open(t.Context(), f.store, Options{}); err == nil || !strings.Contains(err.Error(), "meta/calls") {
		t.Errorf("Open returned %v", err)
	}
}

func TestRetentionIsStoredUnlessItIsTheDefault(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	now := f.clock.Now()
	for _, step := range []struct {
		kept, pass time.Duration
		want       journal.Retention
	}{
		{journal.DefaultRetention, 0, journal.Retention{Kept: journal.DefaultRetention}},
		{30 * day, 0, journal.Retention{Kept: 30 * day}},
		{30 * day, day, journal.Retention{Kept: 30 * day}},
		{60 * day, 0, journal.Retention{Kept: 60 * day, Before: []journal.FormerRetention{{Until: now.Add(day).UnixMilli(), Kept: 30 * day}}}},
		{90 * day, 61 * day, journal.Retention{Kept: 90 * day, Before: []journal.FormerRetention{{Until: now.Add(day).UnixMilli(), Kept: 30 * day}, {Until: now.Add(day).UnixMilli(), Kept: 60 * day}}}},
		{100 * day, 0, journal.Retention{Kept: 100 * day, Before: []journal.FormerRetention{
			{Until: now.Add(day).UnixMilli(), Kept: 30 * day}, {Until: now.Add(day).UnixMilli(), Kept: 60 * day}, {Until: now.Add(62 * day).UnixMilli(), Kept: 90 * day},
		}}},
		{40 * day, 0, journal.Retention{Kept: 40 * day}},
	} {
		f.keepCalls(step.kept)
		err := f.store.View(t.Context(), func(r storage.Reader) error {
			val, err := r.Get([]byte("meta/calls"))
			if step.kept == journal.DefaultRetention && step.want.Before == nil && val != nil {
				t.Errorf("the default is stored: %q", val)
			}
			if err != nil {
				return err
			}
			got, err := journal.ReadRetention(r)
			if got.Kept != step.want.Kept || !slices.Equal(got.Before, step.want.Before) {
				t.Errorf("with retention %v, the record is %+v, want %+v", step.kept, got, step.want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(step.pass)
	}
}
