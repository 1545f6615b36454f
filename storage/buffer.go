package storage

import "time"

// Buffer is a [Txn] that keeps its writes in memory on top of a reader, for engines that
// write a transaction at its end. It reads its own writes. It keeps the slices that it is
// given.
type Buffer struct{ layer }

// NewBuffer returns a Buffer without writes on top of base.
func NewBuffer(base Reader) *Buffer { return &Buffer{layer{base, newPending()}} }

// Set implements [Txn].
func (b *Buffer) Set(key, val []byte, purge time.Time) error {
	if val == nil {
		val = []byte{} // nil is the answer for an absent key
	}
	*b.of(key) = write{key: key, val: val, purge: purge, kind: set}
	return nil
}

// Delete implements [Txn].
func (b *Buffer) Delete(key []byte) error {
	*b.of(key) = write{key: key, kind: deleted}
	return nil
}

// Apply passes the writes to t, each key once.
func (b *Buffer) Apply(t Txn) error { return b.apply(t) }
