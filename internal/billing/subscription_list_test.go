package billing

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// TestAUserWithManySubscriptionsReadsAPage lists 41 subscriptions, 40 of which have ended.
func TestAUserWithManySubscriptionsReadsAPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	counted := &storagetest.Counted{Engine: memory.New()}
	f.close()
	f.base = unclosed{counted}
	f.open()
	user, err := f.directory.CreateUser(t.Context(), "operator", "ann")
	if err != nil {
		t.Fatal(err)
	}
	f.user = user.ID
	f.credit(1000)
	for n := range 41 {
		if n == 40 {
			f.clock.Advance(40 * 24 * time.Hour)
		}
		if _, err := f.buy(1, fmt.Sprint("purchase-", n)); err != nil {
			t.Fatal(err)
		}
	}

	reads := func(what func()) int64 {
		before := counted.Reads.Load()
		what()
		return counted.Reads.Load() - before
	}
	last := int64(0)
	for skip := int64(0); skip < 50; skip += 10 {
		n := reads(func() {
			page, total, err := f.Subscriptions(t.Context(), f.user, skip, 10)
			if want := min(10, max(0, 41-skip)); err != nil || total != 41 || int64(len(page)) != want {
				t.Errorf("after %d: %d of %d, want %d (%v)", skip, len(page), total, want, err)
			}
			for i, s := range page {
				if s.ID >= last && last != 0 || (s.Status == records.Active) != (skip == 0 && i == 0) {
					t.Errorf("after %d: %d follows %d, %s", skip, s.ID, last, s.Status)
				}
				last = s.ID
			}
		})
		if n > 2*41+10*6 {
			t.Errorf("after %d: %d keys were read", skip, n)
		}
	}
	if n := reads(func() {
		running, err := f.Running(t.Context(), f.user)
		if err != nil || len(running) != 1 || running[0].Status != records.Active {
			t.Errorf("%v run (%v)", running, err)
		}
	}); n > 10 {
		t.Errorf("the one that runs took %d keys", n)
	}
}
