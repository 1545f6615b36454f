package table

import (
	"bytes"
	"errors"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Verify compares a table with its indexes in one snapshot. Each record must be decodable, be stored
// under its own primary key, pass Check and have its key in each index. Each index key must match its
// record. It calls problem for each error, with the name that describe returns for
// the record. It returns an error only if the store cannot be read. A problem has no key, because a
// key may be a secret.
func (t *Table[R]) Verify(r storage.Reader, describe func(*R) string, problem func(format string, args ...any)) error {
	if err := t.verifyRecords(r, describe, problem); err != nil {
		return err
	}
	for _, index := range t.Indexes {
		if err := t.verifyIndex(r, index, problem); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table[R]) verifyRecords(r storage.Reader, describe func(*R) string, problem func(format string, args ...any)) (failed error) {
	in := t.Under()
	err := r.Scan(in.lo, in.hi, func(key, value []byte) bool {
		rec, err := t.decode(value)
		if err != nil {
			problem("a record of %s cannot be read: %v", t.Name, err)
			return true
		}
		what := describe(rec)
		if !bytes.Equal(key, t.primary(rec)) {
			problem("%s: it is stored under the key of another record", what)
			return true
		}
		if t.Check != nil {
			for _, wrong := range t.Check(rec) {
				problem("%s: %s", what, wrong)
			}
		}
		primary := storage.Key(t.Key(rec)...)
		for _, index := range t.Indexes {
			key := t.indexKey(index, rec, primary)
			if key == nil {
				continue
			}
			value, err := r.Get(key)
			if err != nil {
				failed = err
				return false
			}
			if !bytes.Equal(value, index.value(primary)) {
				problem("%s: its key of %s is missing", what, index.Name)
			}
		}
		return true
	})
	return errors.Join(failed, err)
}

func (t *Table[R]) verifyIndex(r storage.Reader, index *Index[R], problem func(format string, args ...any)) (failed error) {
	in := index.Under()
	err := r.Scan(in.lo, in.hi, func(key, value []byte) bool {
		rec, err := t.found(r, in, key, value)
		if errors.Is(err, storage.ErrUnreadable) {
			return true // verifyRecords has reported it
		}
		if err != nil {
			failed = err
			return false
		}
		if rec == nil || !bytes.Equal(key, t.indexKey(index, rec, storage.Key(t.Key(rec)...))) {
			problem("a key of %s matches no record of %s", index.Name, t.Name)
		}
		return true
	})
	return errors.Join(failed, err)
}
