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

// Lock waits until the key is free, or ctx ends, and locks it until unlock is called. It
// returns an error only if ctx ends.
func (m *KeyedMutex) Lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		mine := make(chan struct{})
		other, locked := m.locked.LoadOrStore(key, mine)
		if !locked {
			return func() {
				m.locked.Delete(key)
				close(mine)
			}, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
