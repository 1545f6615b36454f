package media

import (
	"context"
	"sync"
)

// mostCopies is the largest number of files that are copied at once from one
// backend, over all tasks. A slow service therefore delays only its own users.
const mostCopies = 16

// copySlots limits how many files are copied at once from each backend.
type copySlots struct {
	mu        sync.Mutex
	byBackend map[string]chan struct{} // by the backend; one for each file that is being copied
}

// acquire waits for a free slot of a backend, and returns the function that
// releases it.
func (h *copySlots) acquire(ctx context.Context, backend string) (free func(), err error) {
	mine := h.slotsOf(backend)
	select {
	case mine <- struct{}{}:
		return func() { <-mine }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// slotsOf returns the slots of a backend. They are never removed, because a
// configuration has few backends.
func (h *copySlots) slotsOf(backend string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine, has := h.byBackend[backend]
	if !has {
		if h.byBackend == nil {
			h.byBackend = make(map[string]chan struct{})
		}
		mine = make(chan struct{}, mostCopies)
		h.byBackend[backend] = mine
	}
	return mine
}
