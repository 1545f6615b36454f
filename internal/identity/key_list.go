package identity

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// What a user has at most of keys that have ended: they are shown for a while,
// and the audit tells of them for longer. A key more drops those that ended first,
// few enough at once that nobody waits for it.
const (
	maxEndedKeys = 1000
	dropAtOnce   = 100
)

// listedKey is a key in the list of its user.
type listedKey struct {
	id   string
	ends int64 // the Unix second in which it ends or has ended; zero: never
}

// ends is when a key ends or has ended, in Unix seconds; zero: never.
func (k keyRecord) ends() int64 { return cmp.Or(k.Revoked, k.ExpiresAt()) }

// writeKey writes a key and its place in the list of its user.
func writeKey(t storage.Txn, key keyRecord) error {
	ends := binary.BigEndian.AppendUint64(nil, uint64(key.ends()))
	if err := t.Set(userKeyKey(key.UserID, key.ID), ends, time.Time{}); err != nil {
		return err
	}
	return storage.SetRecord(t, keyKey(key.ID), key)
}

// userKeys returns the list of a user's keys, in the order of their ids.
func userKeys(r storage.Reader, userID string) ([]listedKey, error) {
	var list []listedKey
	var bare []int
	prefix := userKeyKey(userID, "")
	err := r.Scan(prefix, storage.PrefixEnd(prefix), func(key, ends []byte) bool {
		listed := listedKey{id: string(key[len(prefix):])}
		if len(ends) == 8 {
			listed.ends = int64(binary.BigEndian.Uint64(ends))
		} else {
			bare = append(bare, len(list))
		}
		list = append(list, listed)
		return true
	})
	if err != nil {
		return nil, err
	}
	for _, i := range bare { // listed before the list said when they end
		key, err := findKey(r, list[i].id)
		if err != nil {
			return nil, err
		}
		list[i].ends = key.ends()
	}
	return list, nil
}

// userKeyIDs returns the ids of all keys of a user.
func userKeyIDs(r storage.Reader, userID string) ([]string, error) {
	var ids []string
	prefix := userKeyKey(userID, "")
	err := r.Scan(prefix, storage.PrefixEnd(prefix), func(key, _ []byte) bool {
		ids = append(ids, string(key[len(prefix):]))
		return true
	})
	return ids, err
}

// dropEnded counts the keys that a user has in force, and drops those that ended
// first where too many have.
func dropEnded(t storage.Txn, userID string, now time.Time) (inForce int, dropped []string, err error) {
	list, err := userKeys(t, userID)
	if err != nil {
		return 0, nil, err
	}
	var ended []listedKey
	for _, key := range list {
		if key.ends != 0 && key.ends <= now.Unix() {
			ended = append(ended, key)
		}
	}
	slices.SortFunc(ended, func(a, b listedKey) int { return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.id, b.id)) })
	for _, key := range ended[:min(max(len(ended)-maxEndedKeys, 0), dropAtOnce)] {
		for _, k := range [][]byte{userKeyKey(userID, key.id), keyKey(key.id)} {
			if err := t.Delete(k); err != nil {
				return 0, nil, err
			}
		}
		dropped = append(dropped, key.id)
	}
	return len(list) - len(ended), dropped, nil
}
