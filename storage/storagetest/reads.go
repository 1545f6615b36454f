package storagetest

import (
	"context"
	"sync/atomic"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Counted is an engine that counts the keys that its views read, for tests of bounds.
type Counted struct {
	storage.Engine

	// Reads is the number of keys that views have read, those of scans included.
	Reads atomic.Int64
}

// View implements [storage.Engine].
func (c *Counted) View(ctx context.Context, fn func(storage.Reader) error) error {
	return c.Engine.View(ctx, func(r storage.Reader) error { return fn(CountReads(r, &c.Reads)) })
}

// CountReads returns r as a reader that adds the number of keys that it reads to n.
func CountReads(r storage.Reader, n *atomic.Int64) storage.Reader { return countingReader{r, n} }

type countingReader struct {
	storage.Reader
	reads *atomic.Int64
}

func (r countingReader) Get(key []byte) ([]byte, error) {
	r.reads.Add(1)
	return r.Reader.Get(key)
}

func (r countingReader) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return r.Reader.Scan(lo, hi, func(key, val []byte) bool {
		r.reads.Add(1)
		return fn(key, val)
	})
}
