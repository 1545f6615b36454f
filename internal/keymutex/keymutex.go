// Package keymutex holds [KeyedMutex], a mutex for each name. It imports nothing of this
// module.
package keymutex

import (
	"context"
	"sync"
)

// KeyedMutex is a mutex for each key. The zero value is ready to use, by any number of
// goroutines.
type KeyedMutex struct {
	locked sync.Map // string → chan struct{}, closed by unlock
}

// TryLock locks the key until unlock is called, if it is free. It does not wait. If the key is
// locked, unlock is nil.
func (m *KeyedMutex) TryLock(key string) (unlock func()) {
	unlock, _ = m.try(key)
	return unlock
}

// try is TryLock, but returns a channel that is closed when a locked key becomes free.
func (m *KeyedMutex) try(key string) (unlock func(), freed <-chan struct{}) {
	mine := make(chan struct{})
	other, locked := m.locked.LoadOrStore(key, mine)
	if locked {
		return nil, other.(chan struct{})
	}
	return func() {
		m.locked.Delete(key)
		close(mine)
	}, nil
}

// Lock waits until the key is free, or ctx ends, and locks it until unlock is called. It
// returns an error only if ctx ends.
func (m *KeyedMutex) Lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		unlock, freed := m.try(key)
		if unlock != nil {
			return unlock, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
