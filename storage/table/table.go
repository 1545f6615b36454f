// Package table declares the records of the store. A [Table] has the type of a record, its key, its
// indexes and its expiry. Its methods read, write, list and verify the records, and maintain the
// indexes. A package that owns records declares its tables as variables and reads and writes only
// through them.
//
// The package imports only storage, and does not depend on the meaning of records.
package table

import (
	"bytes"
	"encoding/json"
	"errors"
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

	// Indexes lead to the record by other keys. Put maintains them.
	Indexes []*Index[R]

	// Version is the first byte of a record and rises when the meaning of a field changes.
	// Default: [storage.RecordVersion].
	Version byte

	// Expires returns when the engine may drop the record and its index keys. Nil, and a zero
	// time, mean never.
	Expires func(*R) time.Time

	// Encode and Decode replace JSON. Either both are set or neither.
	Encode func(*R) []byte
	Decode func([]byte) (*R, error)

	// Written returns where a record stores the bytes that Put last wrote, so that Reread can
	// compare them. Nil: they are not stored.
	Written func(*R) *[]byte

	// Check returns the inconsistencies within a record, for Verify.
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
	// primary key, which follows them unless the index is unique. It returns nil for a record that
	// the index leaves out.
	Fields func(*R) Key

	// Fixed means that the fields never change while the record exists, so that a change of
	// the record does not write the index.
	Fixed bool

	// Unique means that the key has only Fields, and at most one record has it. The index
	// stores the primary key of the record as its value.
	Unique bool
}

// ErrTaken is the error of a Put if another record has the same key of a unique index.
var ErrTaken = errors.New("table: another record has this key")

// Get returns the record with this primary key, or nil if there is none. It returns
// [storage.ErrUnreadable] if the record cannot be decoded.
func (t *Table[R]) Get(r storage.Reader, key ...any) (*R, error) {
	return t.read(r, storage.AppendKey(storage.Key(t.Name), key...))
}

// GetOrZero returns the record with this primary key, or a zero record if there is none. It
// has the errors of Get.
func (t *Table[R]) GetOrZero(r storage.Reader, key ...any) (*R, error) {
	rec, err := t.Get(r, key...)
	if err == nil && rec == nil {
		rec = new(R)
	}
	return rec, err
}

// Find returns the record that has these fields in a unique index, or nil if there is none. It
// has the errors of Get.
func (t *Table[R]) Find(r storage.Reader, index *Index[R], fields ...any) (*R, error) {
	primary, err := r.Get(storage.AppendKey(storage.Key(index.Name), fields...))
	if err != nil || primary == nil {
		return nil, err
	}
	return t.read(r, primaryKey(t.Name, primary))
}

// Has reports whether there is a record with this primary key. It does not decode the record.
func (t *Table[R]) Has(r storage.Reader, key ...any) (bool, error) {
	stored, err := r.Get(storage.AppendKey(storage.Key(t.Name), key...))
	return stored != nil, err
}

// Reread is Get for a record that the caller has. If the store still has the bytes that Put last
// wrote, Reread does not decode them: it returns known itself, which must not be changed.
func (t *Table[R]) Reread(r storage.Reader, known *R) (*R, error) {
	stored, err := r.Get(t.primary(known))
	if err != nil || stored == nil {
		return nil, err
	}
	if t.Written != nil && *t.Written(known) != nil && bytes.Equal(stored, *t.Written(known)) {
		return known, nil
	}
	return t.decode(stored)
}

func (t *Table[R]) read(r storage.Reader, key []byte) (*R, error) {
	stored, err := r.Get(key)
	if err != nil || stored == nil {
		return nil, err
	}
	return t.decode(stored)
}

// Put replaces before with after, and writes the index keys that differ. A new record has no
// before (nil), and a deleted one no after. Otherwise both have the same primary key. In a table
// without indexes, before may be nil even if there is a record: after replaces it. Put returns
// [ErrTaken] if another record has a key of a unique index.
func (t *Table[R]) Put(tx storage.Txn, before, after *R) error {
	rec := after
	if after == nil {
		rec = before
	}
	key := t.primary(rec)
	primary := key[len(t.Name)+1:]
	both := before != nil && after != nil
	expiryChanged := both && !t.expires(before).Equal(t.expires(after))
	for _, index := range t.Indexes {
		if both && !expiryChanged && index.Fixed {
			continue
		}
		oldKey, newKey := t.indexKey(index, before, primary), t.indexKey(index, after, primary)
		same := bytes.Equal(oldKey, newKey)
		if oldKey != nil && !same {
			if err := tx.Delete(oldKey); err != nil {
				return err
			}
		}
		if newKey != nil && !same && index.Unique {
			other, err := tx.Get(newKey)
			if err != nil {
				return err
			}
			if other != nil {
				return ErrTaken
			}
		}
		if newKey != nil && (expiryChanged || !same) {
			if err := tx.Set(newKey, index.value(primary), t.expires(after)); err != nil {
				return err
			}
		}
	}
	if after == nil {
		return tx.Delete(key)
	}
	stored := t.encode(after)
	if t.Written != nil {
		*t.Written(after) = stored
	}
	return tx.Set(key, stored, t.expires(after))
}

// Delete removes the record with this primary key and its index keys, if there is one.
func (t *Table[R]) Delete(tx storage.Txn, key ...any) error {
	if len(t.Indexes) == 0 {
		return tx.Delete(storage.AppendKey(storage.Key(t.Name), key...))
	}
	before, err := t.Get(tx, key...)
	if err != nil || before == nil {
		return err
	}
	return t.Put(tx, before, nil)
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
	return storage.AppendKey(storage.Key(t.Name), t.Key(r)...)
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
		return slices.Insert(t.Encode(r), 0, t.version())
	}
	body, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("table: record %T: %v", r, err)) // a mistake in the declaration of R
	}
	return slices.Insert(body, 0, t.version())
}

// decode returns the record, or [storage.ErrUnreadable].
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

// indexKey returns the key of a record in an index; nil if there is none.
func (t *Table[R]) indexKey(index *Index[R], r *R, primary []byte) []byte {
	if r == nil {
		return nil
	}
	fields := index.Fields(r)
	if fields == nil {
		return nil
	}
	key := storage.AppendKey(storage.Key(index.Name), fields...)
	if index.Unique {
		return key
	}
	return append(append(key, '/'), primary...)
}

// value returns the value of the index for a record with this primary key.
func (ix *Index[R]) value(primary []byte) []byte {
	if ix.Unique {
		return primary
	}
	return lengthOf(primary)
}

// lengthOf returns the length of a primary key as one byte. An index that is not unique stores it,
// because its keys end with the primary key.
func lengthOf(primary []byte) []byte { return lengths[len(primary)&0xff : len(primary)&0xff+1] }

var lengths = func() (all [256]byte) {
	for i := range all {
		all[i] = byte(i)
	}
	return all
}()
