package limit

import (
	"context"
	"sync"
)

// Semaphore bounds how many units are held at once. It is safe for concurrent use.
type Semaphore struct{ held chan struct{} }

// NewSemaphore returns a semaphore of n units.
func NewSemaphore(n int) Semaphore { return Semaphore{make(chan struct{}, n)} }

// Acquire takes a unit, and waits for one until ctx ends. It returns an error only if ctx ends.
func (s Semaphore) Acquire(ctx context.Context) error {
	select {
	case s.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryAcquire takes a unit if one is free. It does not wait.
func (s Semaphore) TryAcquire() bool {
	select {
	case s.held <- struct{}{}:
		return true
	default:
		return false
	}
}

// Release gives back a unit that was taken.
func (s Semaphore) Release() { <-s.held }

// Held returns how many units are held.
func (s Semaphore) Held() int { return len(s.held) }

// KeyedSemaphore bounds how many units are held at once, for each key and in all.
// It remembers only keys that hold some. The zero value is ready; it is safe for
// concurrent use.
type KeyedSemaphore struct {
	mu    sync.Mutex
	total int64
	held  map[string]int64
}

// TryAcquire takes one unit for key, unless key holds perKey of them or all keys
// together hold total. It does not wait.
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

// Release gives back a unit that was taken for key.
func (s *KeyedSemaphore) Release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.held[key]--; s.held[key] == 0 {
		delete(s.held, key)
	}
}

// Held returns how many units are held in all.
func (s *KeyedSemaphore) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
