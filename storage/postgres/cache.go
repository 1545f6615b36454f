package postgres

import (
	"bytes"
	"sync"
)

// cache has values that were read or committed lately, for rehearsals. They may be out of date,
// because other nodes write. A value is forgotten when it was used in neither of two generations.
type cache struct {
	mu         sync.Mutex
	young, old map[string][]byte // nil: the key is absent
	size       int               // of young, in bytes
}

// maxGeneration is the size of a generation in bytes.
const maxGeneration = 16 << 20

// overhead is about what an entry takes besides its key and value.
const overhead = 100

func newCache() *cache { return &cache{young: make(map[string][]byte)} }

// get returns the value of a key, nil if the key is absent, and whether the cache knows it.
func (c *cache) get(key []byte) (val []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if val, known = c.young[string(key)]; known {
		return val, true
	}
	if val, known = c.old[string(key)]; known {
		c.put(string(key), val)
	}
	return val, known
}

// keep remembers a value that was read.
func (c *cache) keep(key, val []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(string(key), val)
}

func (c *cache) put(key string, val []byte) {
	if c.size += len(key) + len(val) + overhead; c.size > maxGeneration {
		c.old, c.young = c.young, make(map[string][]byte)
		c.size = len(key) + len(val) + overhead
	}
	c.young[key] = val
}

// committed replaces the values that a commit has changed.
func (c *cache) committed(w *writes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, key := range w.keys {
		delete(c.old, string(key)) // a value that does not fit into young must not come back
		c.put(string(key), bytes.Clone(w.values[i]))
	}
	for _, key := range w.deleted {
		delete(c.old, string(key))
		c.put(string(key), nil)
	}
}
