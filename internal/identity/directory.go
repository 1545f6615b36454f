// Package identity knows who calls: users, their API keys and access tokens, and
// the limits of both. Records live in the store; what the hot path needs of them
// stands in memory, in tables that are right on the next request after a change.
package identity

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Directory is the users, keys and tokens of one store. Its methods may be called concurrently.
type Directory struct {
	// Audit records the changes that are made here.
	Audit *audit.Log

	store   *storage.Store
	keyring *seal.Keyring
	hasher  *hasher

	// skew is how many steps of 30 s a TOTP code may be early or late.
	skew atomic.Int32

	// callbacks is the further check of a callback address. Nil: there is none.
	callbacks atomic.Pointer[func(url string) error]

	// One table for each class, so that no credential is taken for another.
	keys   credentials[Principal]
	tokens credentials[Account]

	// refreshing orders the refreshes of the tables in memory. Each reads what is committed, so
	// that the last one leaves the newest state.
	refreshing sync.Mutex
}

// Open loads the credentials of all users that are not disabled. Changes are written to the
// logger as audit events when they are durable. It refuses a keyring that is not the store's. If
// keyring is nil, TOTP and callback secrets cannot be made or used.
func Open(ctx context.Context, store *storage.Store, keyring *seal.Keyring, logger *zap.Logger) (*Directory, error) {
	d := &Directory{store: store, keyring: keyring, Audit: audit.New(store, logger), hasher: newHasher()}
	d.skew.Store(defaultSkew)
	if keyring != nil {
		if err := keyring.Verify(ctx, store); err != nil {
			return nil, fmt.Errorf("checking the master key: %w", err)
		}
	}
	err := store.View(ctx, func(r storage.Reader) error {
		users := make(map[string]*userRecord)
		for user, err := range userTable.Scan(r, userTable.Under()) {
			if err != nil {
				return err
			}
			users[user.ID] = user
		}
		var keys []*keyRecord
		for key, err := range keyTable.Scan(r, keyTable.Under()) {
			if err != nil {
				return err
			}
			keys = append(keys, key)
		}
		d.keys.load(func(yield func(string, map[Hash]credential[Principal]) bool) {
			for _, key := range keys {
				if user, ok := users[key.UserID]; ok && !yield(key.ID, key.inForce(user)) {
					return
				}
			}
		})
		d.tokens.load(func(yield func(string, map[Hash]credential[Account]) bool) {
			for id, user := range users {
				if !yield(id, user.inForce()) {
					return
				}
			}
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("loading users and keys: %w", err)
	}
	return d, nil
}

// Authenticate returns the principal of an API key. It returns false without distinction for text
// that is no key, for unknown, revoked and expired keys, and for keys of disabled users. It reads
// only memory.
func (d *Directory) Authenticate(key string) (*Principal, bool) {
	hash, ok := keyForm.hash(key)
	if !ok {
		return nil, false
	}
	return d.keys.find(hash, d.store.Now)
}

// Count returns the number of credentials that are in force or will expire.
func (d *Directory) Count() int { return d.keys.count() + d.tokens.count() }

// refreshKeys updates the table in memory to what is committed about the keys with these ids. If
// a key cannot be read, it is removed from the table, so that no revoked key is accepted.
func (d *Directory) refreshKeys(ids ...string) {
	d.refreshing.Lock()
	defer d.refreshing.Unlock()
	for _, id := range ids {
		var key *keyRecord
		var user *userRecord
		err := d.store.View(context.Background(), func(r storage.Reader) (err error) {
			if key, err = mustGet(r, &keyTable, id); err != nil {
				return err
			}
			user, err = mustGet(r, &userTable, key.UserID)
			return err
		})
		if err != nil {
			d.keys.put(id, nil)
			continue
		}
		d.keys.put(id, key.inForce(user))
	}
}

// refreshToken is refreshKeys for the access token of a user.
func (d *Directory) refreshToken(userID string) {
	d.refreshing.Lock()
	defer d.refreshing.Unlock()
	var user *userRecord
	err := d.store.View(context.Background(), func(r storage.Reader) (err error) {
		user, err = mustGet(r, &userTable, userID)
		return err
	})
	if err != nil {
		d.tokens.put(userID, nil)
		return
	}
	d.tokens.put(userID, user.inForce())
}
