package limit

import (
	"context"
	"sync"
)

// Semaphore limits how many units are held at the same time. Its methods may be
// called concurrently.
type Semaphore struct{ held chan struct{} }

// NewSemaphore returns a semaphore of n units.
func NewSemaphore(n int) Semaphore { return Semaphore{make(chan struct{}, n)} }

// Acquire takes a unit. It blocks until one is free. It returns an error only if ctx ends first.
func (s Semaphore) Acquire(ctx context.Context) error {
	select {
	case s.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryAcquire takes a unit if one is free. It does not block.
func (s Semaphore) TryAcquire() bool {
	select {
	case s.held <- struct{}{}:
		return true
	default:
		return false
	}
}

// Release returns a unit that was taken.
func (s Semaphore) Release() { <-s.held }

// Held returns the number of units that are held.
func (s Semaphore) Held() int { return len(s.held) }

// KeyedSemaphore limits how many units are held at the same time, for each key
// and in total. It remembers only keys that hold units. The zero value is ready
// to use. Its methods may be called concurrently.
type KeyedSemaphore struct {
	mu    sync.Mutex
	total int64
	held  map[string]int64
}

// TryAcquire takes a unit for key, unless key holds perKey units or all keys together hold total. It
// does not block.
func (s *KeyedSemaphore) TryAcquire(key string, perKey, total int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= total || s.held[key] >= perKey {
		return false
	}
	if s.held == nil {
		s.held = make(map[string]int64)
	}
	s.held[key]++
	s.total++
	return true
}

// Release returns a unit that was taken for key.
func (s *KeyedSemaphore) Release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.held[key]--; s.held[key] == 0 {
		delete(s.held, key)
	}
}

// Held returns the total number of units that are held.
func (s *KeyedSemaphore) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
