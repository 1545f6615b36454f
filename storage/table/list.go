package table

import (
	"bytes"
	"errors"
	"iter"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Range is a part of a table or of one of its indexes, in the order of its keys.
type Range struct {
	name   string // of the table or index
	index  bool
	unique bool // of the index
	lo, hi []byte
}

// Under returns the range of the records whose primary keys begin with these fields. Without
// fields it has all records.
func (t *Table[R]) Under(fields ...any) Range { return under(t.Name, false, false, fields) }

// Under returns the range of the records whose index fields begin with these. Without fields it
// has all records of the index.
func (ix *Index[R]) Under(fields ...any) Range { return under(ix.Name, true, ix.Unique, fields) }

func under(name string, index, unique bool, fields []any) Range {
	lo, hi := storage.Below(append([]any{name}, fields...)...)
	return Range{name, index, unique, lo, hi}
}

// From returns the part of the range whose keys are at or above these fields. The fields begin with
// the first one of the table or index.
func (in Range) From(fields ...any) Range {
	in.lo = storage.Key(append([]any{in.name}, fields...)...)
	return in
}

// Before returns the part of the range whose keys are below these fields.
func (in Range) Before(fields ...any) Range {
	in.hi = storage.Key(append([]any{in.name}, fields...)...)
	return in
}

// After returns the part of a range of an index that follows last.
func (t *Table[R]) After(in Range, index *Index[R], last *R) Range {
	in.lo = append(t.indexKey(index, last, storage.Key(t.Key(last)...)), 0)
	return in
}

// Bounds returns the first key of the range and the first key after it, for callers that read only
// keys.
func (in Range) Bounds() (lo, hi []byte) { return in.lo, in.hi }

// FromKey returns the part of the range whose keys are at or above key, which Keys has returned.
func (in Range) FromKey(key []byte) Range {
	in.lo = key
	return in
}

// Keys returns at most limit keys from the beginning of the range. Each ends with the primary key.
func (in Range) Keys(r storage.Reader, limit int) (keys [][]byte, err error) {
	if limit <= 0 {
		return nil, nil
	}
	err = r.Scan(in.lo, in.hi, func(key, _ []byte) bool {
		keys = append(keys, bytes.Clone(key))
		return len(keys) < limit
	})
	return keys, err
}

// Scan yields the records of a range. A record that cannot be decoded is yielded as nil with an
// error that is [storage.ErrUnreadable], and the sequence continues. It ends after any other error.
// The loop may read and write in the same transaction.
func (t *Table[R]) Scan(r storage.Reader, in Range) iter.Seq2[*R, error] {
	return func(yield func(*R, error) bool) {
		more := true
		err := r.Scan(in.lo, in.hi, func(key, value []byte) bool {
			rec, err := t.found(r, in, key, value)
			if rec != nil || err != nil {
				more = yield(rec, err)
			}
			return more
		})
		if err != nil && more {
			yield(nil, err)
		}
	}
}

// found returns the record of a key of the range; nil if an index key has no record.
func (t *Table[R]) found(r storage.Reader, in Range, key, value []byte) (*R, error) {
	if !in.index {
		return t.decode(value)
	}
	primary, ok := in.primaryOf(key, value)
	if !ok {
		return nil, nil
	}
	return t.read(r, primaryKey(t.Name, primary))
}

// PrimaryKeys yields the primary keys of the records of a range, without the table's name, and
// reads no record. A primary key of one text field is that text. The sequence ends after an error.
func (t *Table[R]) PrimaryKeys(r storage.Reader, in Range) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		more := true
		err := r.Scan(in.lo, in.hi, func(key, value []byte) bool {
			if primary, ok := in.primaryOf(key, value); ok {
				more = yield(string(primary), nil)
			}
			return more
		})
		if err != nil && more {
			yield("", err)
		}
	}
}

// Page returns at most limit records of a range after the first skip, and the number of
// records in the range. It reads at most maxRead keys, so the total is at most maxRead,
// and decodes only the records that it returns.
func (t *Table[R]) Page(r storage.Reader, in Range, skip, limit, maxRead int64) (list []*R, total int64, err error) {
	var failed error
	err = r.Scan(in.lo, in.hi, func(key, value []byte) bool {
		total++
		if total > skip && total <= skip+limit {
			var rec *R
			if rec, failed = t.found(r, in, key, value); rec != nil {
				list = append(list, rec)
			}
		}
		return failed == nil && total < maxRead
	})
	return list, total, errors.Join(failed, err)
}

// Matching returns at most limit records of a range for which match returns true. It reads at most
// maxRead records. If the range may have more, the list continues after last.
func (t *Table[R]) Matching(r storage.Reader, in Range, limit, maxRead int64, match func(*R) bool) (list []*R, last *R, err error) {
	var read int64
	for rec, err := range t.Scan(r, in) {
		if err != nil {
			return nil, nil, err
		}
		if int64(len(list)) == limit || read == maxRead {
			return list, last, nil
		}
		read++
		if last = rec; match(rec) {
			list = append(list, rec)
		}
	}
	return list, nil, nil
}

// primaryOf returns the primary key of the record of a key of the range, without the table's name.
func (in Range) primaryOf(key, value []byte) (primary []byte, ok bool) {
	switch {
	case !in.index:
		return key[len(in.name)+1:], true
	case in.unique:
		return value, true
	}
	if len(value) != 1 || len(key) <= int(value[0]) {
		return nil, false
	}
	return key[len(key)-int(value[0]):], true
}

func primaryKey(name string, primary []byte) []byte {
	return storage.Key(name, string(primary))
}
