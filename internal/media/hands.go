package media

import (
	"context"
	"sync"
)

// mostCopies is how many files are copied at once of the results of one backend,
// over all tasks: a service that sends slowly keeps nobody waiting who uses
// another.
const mostCopies = 16

// hands copy files. Each backend has its own.
type hands struct {
	mu sync.Mutex
	of map[string]chan struct{} // by the backend; one for each file that is being copied
}

// take waits until a hand of a backend is free, and returns what gives it back.
func (h *hands) take(ctx context.Context, backend string) (free func(), err error) {
	mine := h.those(backend)
	select {
	case mine <- struct{}{}:
		return func() { <-mine }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// those returns the hands of a backend. Configurations name few, so that they
// are kept.
func (h *hands) those(backend string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine, has := h.of[backend]
	if !has {
		if h.of == nil {
			h.of = make(map[string]chan struct{})
		}
		mine = make(chan struct{}, mostCopies)
		h.of[backend] = mine
	}
	return mine
}
