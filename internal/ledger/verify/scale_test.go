package verify

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
)

var verifyEntries = flag.Int64("verify.entries", 3000, "number of entries in the store of TestVerifyOfALargeStore")

// TestVerifyOfALargeStore makes a store with calls of many users, and logs the time and the memory
// that Verify needs.
func TestVerifyOfALargeStore(t *testing.T) {
	t.Parallel()
	f := onBadger(t, t.TempDir())
	// Each batch of the settler has one call, and so one entry, of each user.
	const users = 400
	for n := range users {
		f.credit(userNumber(n), money.Unit)
	}
	for round := range int(*verifyEntries) / users {
		for n := range users {
			r := f.reserve(ledger.Payer{User: userNumber(n)}, 200)
			c := aCall(f, fmt.Sprintf("req_%08d", round*users+n), userNumber(n))
			c.Time += int64(round)
			r.Settle(c, 100, true)
		}
		f.settled()
	}

	before, stop := live(), make(chan struct{})
	most := make(chan uint64)
	go func() {
		most <- highest(stop)
	}()
	report := f.checkVerified()
	close(stop)
	t.Logf("%+v; Verify used at most %d KiB of memory", report, max(int64(<-most)-int64(before), 0)>>10)
	if report.Entries < *verifyEntries {
		t.Errorf("the store has %d entries, want %d", report.Entries, *verifyEntries)
	}
}

func userNumber(n int) string { return fmt.Sprintf("user_%06d", n) }

// live returns the memory in use, in bytes, after a garbage collection.
func live() uint64 {
	runtime.GC()
	return collected()
}

// collected returns the memory in use, in bytes, after the last garbage collection.
func collected() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// highest returns the highest memory use, in bytes, until stop is closed.
func highest(stop <-chan struct{}) (most uint64) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		most = max(most, collected())
		select {
		case <-tick.C:
		case <-stop:
			return most
		}
	}
}
