// Package table declares records once. A [Table] says what a record's type is, by which key it is
// stored, which indexes lead to it and when it expires; reading, writing, listing, index
// maintenance and verification follow from that. A package that owns records declares its tables
// as variables and reads and writes only through them.
//
// The package imports storage alone and knows nothing of what records mean.
package table

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Table declares one kind of record. R is a struct that [encoding/json] can write, unless
// Encode and Decode are set. A Table has no state: its methods may be called concurrently, each
// within a transaction of the caller.
type Table[R any] struct {
	// Name is the first field of each primary key, and differs from that of every other table
	// and index of the store.
	Name string

	// Key returns the primary key, which never changes while the record exists.
	Key func(*R) Key

	// Indexes lead to the record by other keys. They are kept up by Put.
	Indexes []*Index[R]

	// Version is the first byte of a record and rises when the meaning of a field changes.
	// Default: [storage.RecordVersion].
	Version byte

	// Expires returns when the engine may drop the record and its index keys. Nil, and a zero
	// time, mean never.
	Expires func(*R) time.Time

	// Encode and Decode replace JSON. Both are set or none.
	Encode func(*R) []byte
	Decode func([]byte) (*R, error)

	// Check returns what in a record contradicts itself, for Verify.
	Check func(*R) []string
}

// Key is the fields of a key after the name of its table or index: texts and int64, as
// [storage.Key] takes them.
type Key []any

// Index declares keys by which a table's records are found in another order.
type Index[R any] struct {
	// Name is the first field of each key.
	Name string

	// Fields returns the fields by which the index is ordered, without Name and without the
	// primary key, which always follows them. It returns nil for a record that the index leaves
	// out.
	Fields func(*R) Key
}

// Get returns the record with this primary key, or nil if there is none. It fails with
// [storage.ErrUnreadable] if there is one that cannot be decoded.
func (t *Table[R]) Get(r storage.Reader, key ...any) (*R, error) {
	return t.read(r, storage.Key(append([]any{t.Name}, key...)...))
}

func (t *Table[R]) read(r storage.Reader, key []byte) (*R, error) {
	stored, err := r.Get(key)
	if err != nil || stored == nil {
		return nil, err
	}
	return t.decode(stored)
}

// Put writes after in place of before, and the index keys that differ. Before is nil for a new
// record, after is nil for one that is deleted; otherwise both have the same primary key.
func (t *Table[R]) Put(tx storage.Txn, before, after *R) error {
	had, has := t.indexKeys(before), t.indexKeys(after)
	for _, key := range had {
		if !slices.ContainsFunc(has, key.equal) {
			if err := tx.Delete(key.bytes); err != nil {
				return err
			}
		}
	}
	if after == nil {
		return tx.Delete(t.primary(before))
	}
	expires := t.expires(after)
	moved := before != nil && !t.expires(before).Equal(expires)
	for _, key := range has {
		if moved || !slices.ContainsFunc(had, key.equal) {
			if err := tx.Set(key.bytes, key.value(), expires); err != nil {
				return err
			}
		}
	}
	return tx.Set(t.primary(after), t.encode(after), expires)
}

// Change reads a record, lets fn change it, and writes it. It returns the record as written; nil
// if there is none or if fn returns false, which writes nothing.
func (t *Table[R]) Change(tx storage.Txn, key Key, fn func(*R) bool) (*R, error) {
	before, err := t.Get(tx, key...)
	if err != nil || before == nil {
		return nil, err
	}
	after := *before
	if !fn(&after) {
		return nil, nil
	}
	return &after, t.Put(tx, before, &after)
}

func (t *Table[R]) primary(r *R) []byte {
	return storage.Key(append([]any{t.Name}, t.Key(r)...)...)
}

func (t *Table[R]) expires(r *R) time.Time {
	if t.Expires == nil {
		return time.Time{}
	}
	return t.Expires(r)
}

func (t *Table[R]) version() byte {
	if t.Version == 0 {
		return storage.RecordVersion
	}
	return t.Version
}

func (t *Table[R]) encode(r *R) []byte {
	if t.Encode != nil {
		return append([]byte{t.version()}, t.Encode(r)...)
	}
	body, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("table: record %T: %v", r, err)) // a mistake in the declaration of R
	}
	return slices.Insert(body, 0, t.version())
}

// decode fails with [storage.ErrUnreadable].
func (t *Table[R]) decode(stored []byte) (rec *R, err error) {
	switch {
	case len(stored) == 0 || stored[0] != t.version():
		err = fmt.Errorf("its version is not %d", t.version())
	case t.Decode != nil:
		rec, err = t.Decode(stored[1:])
	default:
		rec = new(R)
		err = json.Unmarshal(stored[1:], rec)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", t.Name, storage.ErrUnreadable, err)
	}
	return rec, nil
}

// indexKey is one key that leads to a record.
type indexKey struct {
	name    string // of the index
	bytes   []byte // nil: the index leaves the record out
	primary int    // length of the primary key, without the table's name, at the end
}

// value is what the index stores at the key: how long the primary key at its end is.
func (k indexKey) value() []byte { return []byte{byte(k.primary)} }

func (k indexKey) equal(other indexKey) bool { return bytes.Equal(k.bytes, other.bytes) }

// indexKeys returns all keys that lead to a record; none for nil.
func (t *Table[R]) indexKeys(r *R) (keys []indexKey) {
	if r == nil {
		return nil
	}
	for _, index := range t.Indexes {
		if key := t.indexKey(index, r); key.bytes != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

func (t *Table[R]) indexKey(index *Index[R], r *R) indexKey {
	fields := index.Fields(r)
	if fields == nil {
		return indexKey{name: index.Name}
	}
	primary := t.Key(r)
	all := append(append([]any{index.Name}, fields...), primary...)
	return indexKey{index.Name, storage.Key(all...), len(storage.Key(primary...))}
}
