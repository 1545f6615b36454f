// Package keymutex provides [KeyedMutex], a mutex for each key. It imports no other package of this
// module.
package keymutex

import (
	"context"
	"sync"
)

// KeyedMutex is a mutex for each key. The zero value is ready to use. Its methods may be called
// concurrently.
type KeyedMutex struct {
	locked sync.Map // string → chan struct{}, closed by unlock
}

// TryLock locks the key if it is free, until unlock is called. It does not block. If the key is
// locked already, unlock is nil.
func (m *KeyedMutex) TryLock(key string) (unlock func()) {
	unlock, _ = m.try(key)
	return unlock
}

// try is TryLock. If the key is locked, it also returns a channel that is closed when the key is
// unlocked.
func (m *KeyedMutex) try(key string) (unlock func(), freed <-chan struct{}) {
	unlocked := make(chan struct{})
	held, locked := m.locked.LoadOrStore(key, unlocked)
	if locked {
		return nil, held.(chan struct{})
	}
	return func() {
		m.locked.Delete(key)
		close(unlocked)
	}, nil
}

// Lock waits until the key is free and locks it until unlock is called. It returns an error only if
// ctx ends first.
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
