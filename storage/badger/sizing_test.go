package badger

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// TestMergingTablesUsesLimitedMemory writes at full speed to all parts of the
// store, so that tables are merged all the time, and measures the heap. It does
// not run in parallel with other tests of the package.
func TestMergingTablesUsesLimitedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 128 MiB")
	}
	// Garbage is collected early, so the measured heap is close to the live
	// one.
	defer debug.SetGCPercent(debug.SetGCPercent(25))
	const (
		limit   = 160 << 20 // all buffers that can be in use at the same time, and a quarter of that as garbage
		written = 128 << 20
	)
	e := openTest(t, t.TempDir()) // with `memory small`
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() { peak <- heapPeak(stop) }()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	for n, size := 0, 0; size < written; n += 128 {
		err := e.Update(t.Context(), func(tx storage.Txn) error {
			for i := n; i < n+128; i++ {
				_, val := record(i)
				key := fmt.Appendf(nil, "call/user-%04d/%016x", r.IntN(1000), i)
				size += len(key) + len(val)
				if err := tx.Set(key, val, never); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	got := <-peak
	merged := 0
	for _, table := range e.db.Tables() {
		if table.Level > 0 {
			merged++
		}
	}
	t.Logf("the heap was %d MiB at most, with %d merged tables", got>>20, merged)
	if merged == 0 {
		t.Error("no tables were merged: the test is not effective")
	}
	if got > limit {
		t.Errorf("the heap was %d MiB, want at most %d", got>>20, limit>>20)
	}
}

// heapPeak returns the maximum size of the heap until stop is closed.
func heapPeak(stop <-chan struct{}) (peak uint64) {
	objects := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		metrics.Read(objects)
		peak = max(peak, objects[0].Value.Uint64())
		select {
		case <-stop:
			return peak
		case <-tick.C:
		}
	}
}
