package identity

import (
	"cmp"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// What a user has at most of keys that have ended: they are shown for a while,
// and the audit tells of them for longer. A key more drops those that ended first,
// few enough at once that nobody waits for it.
const (
	maxEndedKeys = 1000
	dropAtOnce   = 100
)

// ends is when a key ends or has ended, in Unix seconds; zero: never.
func (k *keyRecord) ends() int64 { return cmp.Or(k.Revoked, k.ExpiresAt()) }

// userKeyIDs returns the ids of all keys of a user.
func userKeyIDs(r storage.Reader, userID string) ([]string, error) {
	return keyIDs(r, userKeys.Under(userID))
}

func keyIDs(r storage.Reader, in table.Range) (ids []string, err error) {
	for id, err := range keyTable.PrimaryKeys(r, in) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// dropEnded counts the keys that a user has in force, and drops those that ended
// first where too many have.
func dropEnded(t storage.Txn, userID string, now time.Time) (inForce int, dropped []string, err error) {
	all, err := userKeyIDs(t, userID)
	if err != nil {
		return 0, nil, err
	}
	ended, err := keyIDs(t, userKeys.Under(userID).From(userID, int64(1)).Before(userID, now.Unix()+1))
	if err != nil {
		return 0, nil, err
	}
	dropped = ended[:min(max(len(ended)-maxEndedKeys, 0), dropAtOnce)]
	for _, id := range dropped {
		if err := keyTable.Delete(t, id); err != nil {
			return 0, nil, err
		}
	}
	return len(all) - len(ended), dropped, nil
}
