package main

import (
	"path/filepath"
	"testing"
	"time"

	ledgerverify "github.com/caddy-modelgate/modelgate/internal/ledger/verify"

	"github.com/caddy-modelgate/modelgate/internal/billing/verify"
	"github.com/caddy-modelgate/modelgate/storage"
)

// newTestStore opens a new store.
func newTestStore(t *testing.T) *testStore {
	t.Helper()
	b, err := openTestStore(t.Context(), filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// verifyStore verifies the store and returns the report.
func verifyStore(t *testing.T, b *testStore) (r ledgerverify.Report) {
	t.Helper()
	b.ledger.Close(t.Context())
	now := b.store.Now()
	err := b.store.View(t.Context(), func(reader storage.Reader) (err error) {
		r, err = ledgerverify.Verify(t.Context(), reader, now, func(p ledgerverify.Problem) { t.Errorf("%s: %s", p.Where, p.What) })
		if err == nil {
			err = verify.Check(reader, now, t.Errorf)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheSeededLedgerVerifies(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	const entries = 12_345
	if _, err := (ledgerSeed{entries}).fill(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	r := verifyStore(t, b)
	if r.Entries < entries || r.Entries > entries+1 {
		t.Errorf("the ledger has %d entries, want %d or one more", r.Entries, entries)
	}
	if calls, transfers := int64(entries*3/8), int64(entries/4); r.Calls < calls || r.Transfers <= transfers || r.Users != seededUsers {
		t.Errorf("%+v, want %d calls, more than %d transfers, %d users", r, calls, transfers, seededUsers)
	}
}

func TestPurchasesAndCommitsAlternate(t *testing.T) {
	t.Parallel()
	b := newTestStore(t)
	o := besideOrder{besideCommits: besideCommits{Concurrency: 8, Users: 5}, Turns: turns{Warm: time.Millisecond, Slice: 5 * time.Millisecond, Rounds: 2}}
	p, err := o.buyPlans(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for n, s := range p {
		if s.Units < int64(o.Turns.Rounds*o.Concurrency) || s.Took < time.Duration(o.Turns.Rounds)*o.Turns.Slice {
			t.Errorf("group %d: %d units in %v", n, s.Units, s.Took)
		}
	}
	if r := verifyStore(t, b); r.IdempotencyKeys < p[1].Units {
		t.Errorf("%d purchases were counted, the ledger has %d", p[1].Units, r.IdempotencyKeys)
	}
}
