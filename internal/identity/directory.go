// Package identity knows who calls: users and their API keys. Records live in
// the store; what the hot path needs of them stands in memory, in a table that
// is right on the next request after a change.
package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Directory is the users and keys of one store.
type Directory struct {
	store *storage.Store
	audit *zap.Logger
	live  credentials

	// refreshing orders the refreshes of the table in memory: each reads what
	// is committed, so the last one to run leaves the newest state.
	refreshing sync.Mutex
}

// Open loads the credentials of all users that are not disabled. What is changed
// afterwards is told to the audit log, when it is durable.
func Open(ctx context.Context, store *storage.Store, audit *zap.Logger) (*Directory, error) {
	d := &Directory{store: store, audit: audit}
	err := store.View(ctx, func(r storage.Reader) error {
		users := make(map[string]User)
		if err := scanRecords(r, userPrefix, func(u User) { users[u.ID] = u }); err != nil {
			return err
		}
		var keys []keyRecord
		if err := scanRecords(r, keyRecordPrefix, func(k keyRecord) { keys = append(keys, k) }); err != nil {
			return err
		}
		d.live.load(users, keys)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("loading users and keys: %w", err)
	}
	return d, nil
}

// Authenticate returns the principal of an API key. It answers false alike for
// junk, unknown, revoked and expired keys and for keys of disabled users. It
// reads memory only.
func (d *Directory) Authenticate(key string) (*Principal, bool) {
	hash, ok := hashKey(key)
	if !ok {
		return nil, false
	}
	return d.live.find(hash, d.store.Now())
}

// Count returns the number of credentials that are in force or will expire.
func (d *Directory) Count() int { return d.live.count() }

// refresh brings the table in memory up to what is committed about the keys
// with these ids. If that cannot be read, the keys are shut out: better a
// caller refused than a revoked key let in.
func (d *Directory) refresh(ids ...string) {
	d.refreshing.Lock()
	defer d.refreshing.Unlock()
	for _, id := range ids {
		var key keyRecord
		var user User
		err := d.store.View(context.Background(), func(r storage.Reader) error {
			if found, err := storage.GetRecord(r, keyKey(id), &key); err != nil || !found {
				return cmp.Or(err, errGone)
			}
			if found, err := storage.GetRecord(r, userKey(key.UserID), &user); err != nil || !found {
				return cmp.Or(err, errGone)
			}
			return nil
		})
		if err != nil {
			d.live.drop(id)
			continue
		}
		d.live.put(user, key)
	}
}

var errGone = errors.New("record is gone")

// unavailable turns an error of the store into what a caller may hear of it.
// Faults pass as they are.
func unavailable(err error) error {
	var f *fault.Fault
	if err == nil || errors.As(err, &f) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", fault.New(fault.StoreUnavailable, "the store does not answer").After(5*time.Second), err)
}

// scanRecords calls fn for every record below prefix.
func scanRecords[T any](r storage.Reader, prefix string, fn func(T)) error {
	var bad error
	err := r.Scan([]byte(prefix), storage.PrefixEnd([]byte(prefix)), func(key, val []byte) bool {
		var record T
		if bad = storage.DecodeRecord(val, &record); bad != nil {
			bad = fmt.Errorf("%q: %w", key, bad)
			return false
		}
		fn(record)
		return true
	})
	return cmp.Or(err, bad)
}
