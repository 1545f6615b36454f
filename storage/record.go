package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// RecordVersion is the first byte of every JSON record. It rises when the
// meaning of a field changes; adding a field does not change it.
const RecordVersion = 1

// EncodeRecord returns v as a record: one version byte and JSON. It panics if v
// cannot be encoded, which is a programming error.
func EncodeRecord(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("storage: record %T: %v", v, err))
	}
	return slices.Insert(body, 0, RecordVersion)
}

// DecodeRecord decodes a record of EncodeRecord into v.
func DecodeRecord(record []byte, v any) error {
	if len(record) == 0 {
		return errors.New("storage: empty record")
	}
	if record[0] != RecordVersion {
		return fmt.Errorf("storage: record version %d, this build reads %d", record[0], RecordVersion)
	}
	return json.Unmarshal(record[1:], v)
}

// ErrUnreadable is the error of a record that exists and cannot be decoded.
var ErrUnreadable = errors.New("its record cannot be read")

// GetRecord decodes the record at key into v and reports whether there is one.
// It returns ErrUnreadable if the record cannot be decoded.
func GetRecord(r Reader, key []byte, v any) (bool, error) {
	record, err := r.Get(key)
	if err != nil || record == nil {
		return false, err
	}
	if err := DecodeRecord(record, v); err != nil {
		return false, fmt.Errorf("%q: %w: %w", key, ErrUnreadable, err)
	}
	return true, nil
}

// SetRecord writes v as the record at key, without expiry.
func SetRecord(t Txn, key []byte, v any) error {
	return t.Set(key, EncodeRecord(v), time.Time{})
}

// PrefixEnd returns the first key after all keys that begin with prefix, or nil
// if there is none.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

// format is the layout of keys and records that this build writes. It rises
// when an earlier build would misread it.
const format = 1

type formatRecord struct {
	Format  int   `json:"format"`
	Created int64 `json:"created"`
}

var formatKey = []byte("meta/format")

// CheckReadable returns an error if a newer build has written to the store.
func CheckReadable(r Reader) error {
	_, err := readFormat(r)
	return err
}

// readFormat returns the format of a store; zero for a new one.
func readFormat(r Reader) (have formatRecord, err error) {
	if _, err = GetRecord(r, formatKey, &have); err == nil && have.Format > format {
		err = fmt.Errorf("the store has format %d, this build reads up to %d: use the build that wrote it", have.Format, format)
	}
	return have, err
}

// CheckFormat writes the format of this build to the store. It returns an error
// if a newer build has written to it.
func CheckFormat(ctx context.Context, s *Store) error {
	return s.Update(ctx, func(t Txn) error {
		have, err := readFormat(t)
		if err != nil || have.Format == format {
			return err
		}
		return SetRecord(t, formatKey, formatRecord{format, s.Now().Unix()})
	})
}
