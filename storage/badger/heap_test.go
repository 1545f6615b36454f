package badger

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// TestHeapGrowth proves that an open store sets by how much the heap grows before
// the next collection, and that Close restores the default. It does not run in
// parallel with other tests of the package.
func TestHeapGrowth(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(defaultGOGC))
	const least = 200 << 20
	c := testConfig(t.TempDir())
	c.size.heapGrowth = least
	e := openWith(t, c)

	// The heap is larger than least, and most of it has no pointers.
	buffers := make([]byte, 2*least)
	awaitGrowth(t, least)
	runtime.KeepAlive(buffers)

	// Most of it has pointers: it may grow by what the collector scans.
	pointers := make([]*byte, 2*least/8)
	buffers = nil
	awaitGrowth(t, 2*least)
	runtime.KeepAlive(pointers)

	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	runtime.GC() // what waits for a collection has no effect
	if got := debug.SetGCPercent(defaultGOGC); got != defaultGOGC {
		t.Errorf("after Close GOGC is %d, want %d", got, defaultGOGC)
	}
}

// TestHeapGrowthObeysGOGC sets GOGC in the environment.
func TestHeapGrowthObeysGOGC(t *testing.T) {
	t.Setenv("GOGC", "50")
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	e := openTest(t, t.TempDir())
	if got := debug.SetGCPercent(50); got != 50 {
		t.Errorf("GOGC is %d, want 50 as in the environment", got)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if got := debug.SetGCPercent(50); got != 50 {
		t.Errorf("after Close GOGC is %d, want 50", got)
	}
}

// awaitGrowth waits until the heap may grow by about want bytes beyond the live
// heap before the next collection.
func awaitGrowth(t *testing.T, want int64) {
	t.Helper()
	const tolerance = 32 << 20 // other tests of the package leave stacks and garbage
	samples := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	var growth int64
	for began := time.Now(); time.Since(began) < 10*time.Second; runtime.Gosched() {
		runtime.GC()
		metrics.Read(samples)
		growth = int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
		if growth > want-tolerance && growth < want+tolerance {
			return
		}
	}
	t.Errorf("the heap may grow by %d MiB, want about %d", growth>>20, want>>20)
}
