package badger

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// heapGrowth sets by how much the heap of the process grows between two garbage
// collections, because Go's default does not fit this engine: the heap doubles.
// Without merges the heap is small, so Go would collect it several times a second
// for the same calls. During merges most of it is buffers, and Go would let it
// grow by their size again, although they have no pointers and cost a collection
// nothing.
//
// After each collection, heapGrowth sets GOGC so that the heap grows by least, or
// by the part that the collector scans if that is more. So a collection never
// scans more than was allocated since the last one, as with the default.
type heapGrowth struct {
	least uint64 // bytes

	mu      sync.Mutex
	stopped bool
	samples [2]metrics.Sample
}

// defaultGOGC is Go's default of GOGC.
const defaultGOGC = 100

// smallestHeap is the size of the heap at the first collection with GOGC=100.
const smallestHeap = 4 << 20

// startHeapGrowth returns nil if the environment sets GOGC, which takes
// precedence.
func startHeapGrowth(least int64) *heapGrowth {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	h := &heapGrowth{least: uint64(least)}
	h.samples[0].Name, h.samples[1].Name = "/gc/heap/live:bytes", "/gc/scan/total:bytes"
	h.adjust()
	return h
}

// adjust sets GOGC, and does so again after the next collection, until stop.
func (h *heapGrowth) adjust() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	metrics.Read(h.samples[:])
	live, scanned := h.samples[0].Value.Uint64(), h.samples[1].Value.Uint64()
	debug.SetGCPercent(max(1, int(max(h.least, scanned)*100/max(live, smallestHeap))))

	type garbage struct{ _ *byte } // the pointer makes it an allocation of its own
	runtime.AddCleanup(new(garbage), (*heapGrowth).adjust, h)
}

// stop restores the default.
func (h *heapGrowth) stop() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	debug.SetGCPercent(defaultGOGC)
}
