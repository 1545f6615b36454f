// Package identity owns users and their credentials: API keys, access tokens, passwords, sessions
// and second factors; and the limits of users and keys. [Directory] has all operations. A
// [Principal] is the caller of a model, by an API key. An [Account] is the caller of the console,
// by a session or an access token. Records are in the store, in the tables of tables.go;
// limits.go has the limits of keys and users. The keys and tokens in force are also in memory, and a
// change acts on the next request. On a shared store, nodes.go refreshes the memory of all nodes.
//
// Sub-packages have the parts that need no Directory. Package factor has the second factors,
// password hashes passwords, credential has the secrets and their forms, and attempts counts
// attempts. The package imports no package that serves requests, and not the ledger.
package identity

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Secret is a credential in clear.
type Secret = credential.Secret

// Directory manages the users, keys and tokens of one store. Its methods may be called concurrently.
type Directory struct {
	// Audit records the changes by this Directory.
	Audit *audit.Log

	store   *storage.Store
	keyring *seal.Keyring
	hasher  *password.Hasher
	factors *factor.Service

	// callbacks is an additional check of callback addresses. Nil: there is none.
	callbacks atomic.Pointer[func(url string) error]

	// One table for each class, so that a credential of one class is not accepted as another.
	keys   credential.Table[Principal]
	tokens credential.Table[Account]

	// refreshing orders the refreshes of the tables in memory. Each reads what is committed, so
	// that the last one leaves the newest state.
	refreshing sync.Mutex
}

// Open loads the credentials of all users that are not disabled. Changes are written to the
// logger as audit events when they are durable. Open returns an error if the keyring does not belong
// to the store. If keyring is nil, TOTP and callback secrets cannot be created or used.
func Open(ctx context.Context, store *storage.Store, keyring *seal.Keyring, logger *zap.Logger) (*Directory, error) {
	log := audit.New(store, logger)
	d := &Directory{
		Audit: log, store: store, keyring: keyring,
		hasher: password.NewHasher(runtime.GOMAXPROCS(0)), factors: factor.New(store, keyring, log),
	}
	if keyring != nil {
		if err := keyring.Open(ctx, store); err != nil {
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
		keys, err := collect(keyTable.Scan(r, keyTable.Under()))
		if err != nil {
			return err
		}
		d.keys.Load(func(yield func(string, credential.Entries[Principal]) bool) {
			for _, key := range keys {
				if user, ok := users[key.UserID]; ok && !yield(key.ID, key.inForce(user)) {
					return
				}
			}
		})
		d.tokens.Load(func(yield func(string, credential.Entries[Account]) bool) {
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

// Authenticate returns the principal of an API key. It returns the same false for text that
// is not a key, for unknown, revoked and expired keys, and for keys of disabled users. It reads only
// memory.
func (d *Directory) Authenticate(key string) (*Principal, bool) {
	hash, ok := credential.APIKey.Hash(key)
	if !ok {
		return nil, false
	}
	return d.keys.Find(hash, d.store.Now)
}

// Count returns the number of credentials that are in force or will expire.
func (d *Directory) Count() int { return d.keys.Count() + d.tokens.Count() }

// view returns the result of fn in a read transaction. Its errors are those of [fault.OfStore].
func view[T any](ctx context.Context, d *Directory, fn func(storage.Reader) (T, error)) (T, error) {
	var got T
	err := d.store.View(ctx, func(r storage.Reader) (err error) {
		got, err = fn(r)
		return err
	})
	return got, fault.OfStore(err)
}

// collect returns the values of a sequence.
func collect[V any](values iter.Seq2[V, error]) (all []V, err error) {
	for value, err := range values {
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}
