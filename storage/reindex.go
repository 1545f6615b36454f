package storage

import (
	"bytes"
	"slices"
	"time"
)

// Reindex replaces the keys that lead to a record, in the transaction that writes
// it: those that it had and has no more are deleted, and those that it had not
// are set, empty and for ever. What it had and still has is not written again,
// since most changes of a record move few of its keys. A record that is new had
// none, and one that is removed has none.
func Reindex(t Txn, had, has [][]byte) error {
	for _, key := range had {
		if holds(has, key) {
			continue
		}
		if err := t.Delete(key); err != nil {
			return err
		}
	}
	for _, key := range has {
		if holds(had, key) {
			continue
		}
		if err := t.Set(key, nil, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

func holds(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
}
