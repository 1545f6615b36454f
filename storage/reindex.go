package storage

import (
	"bytes"
	"slices"
	"time"
)

// Reindex updates the index keys of a record in the transaction that writes the
// record. It deletes the keys that are only in before, and sets those that are
// only in after, empty and without expiry. It does not write unchanged keys
// again, because most changes affect few of them. A new record has no keys
// before, and a removed record has none after.
func Reindex(t Txn, before, after [][]byte) error {
	for _, key := range before {
		if contains(after, key) {
			continue
		}
		if err := t.Delete(key); err != nil {
			return err
		}
	}
	for _, key := range after {
		if contains(before, key) {
			continue
		}
		if err := t.Set(key, nil, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

func contains(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
}
