package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/storage"
)

// sessionSeed is the number of users and sessions in a store.
type sessionSeed struct {
	Users    int64
	Sessions int64
	Epoch    int64 // of the users: how often all their sessions were ended
}

// sessionsEach is the number of sessions of each user.
const sessionsEach = 10

// withSessions returns the console of a gateway with this many sessions.
func withSessions(sessions int64) side {
	return side{
		name: fmt.Sprintf("people-%d", sessions), caddyfile: consoleCaddyfile, reads: selfPath,
		sessionSeed: sessionSeed{Users: max(sessions/sessionsEach, 1), Sessions: max(sessions, 1)},
	}
}

// seedSessions gives a site the store of a gateway with many users.
func (b *bench) seedSessions(ctx context.Context, s *site) error {
	return b.fill(ctx, s, roleSeedSessions, s.sessionSeed, &s.keys)
}

const (
	userWriters    = 64   // goroutines that create users
	sessionsAtOnce = 1000 // in a transaction
	knownSessions  = 4096 // number of sessions whose secrets fill returns
	seededIdle     = 24 * time.Hour
	seededLifetime = 30 * 24 * time.Hour
)

// fill creates the users and sessions, and returns the secrets of some
// sessions.
func (c sessionSeed) fill(ctx context.Context, b *testStore) (secrets []string, err error) {
	users, err := c.createUsers(ctx, b.store)
	if err != nil {
		return nil, err
	}
	return c.openSessions(ctx, b.store, users)
}

// createUsers creates the users as an operator does, and returns their ids.
func (c sessionSeed) createUsers(ctx context.Context, store *storage.Store) ([]string, error) {
	directory, err := identity.Open(ctx, store, nil, discardLogger())
	if err != nil {
		return nil, err
	}
	ids, errs := make([]string, c.Users), make([]error, userWriters)
	var all sync.WaitGroup
	for writer := range userWriters {
		all.Go(func() {
			for n := writer; n < len(ids) && errs[writer] == nil; n += userWriters {
				var user identity.User
				user, errs[writer] = directory.CreateUser(ctx, "operator", userName(n))
				ids[n] = user.ID
			}
		})
	}
	all.Wait()
	return ids, errors.Join(errs...)
}

// session is the record of package identity, stored under session/ and the hash
// of the secret. A million sessions would take too long to open by password. If
// the gateway does not accept the sessions that are written here, the run
// fails.
type session struct {
	Hash     []byte `json:"hash"`
	ID       string `json:"id"`
	UserID   string `json:"user_id"`
	Epoch    int64  `json:"epoch,omitempty"`
	Created  int64  `json:"created"`
	Seen     int64  `json:"seen"`
	Idle     int64  `json:"idle"`
	Lifetime int64  `json:"lifetime"`
	Address  string `json:"address"`
	Agent    string `json:"agent"`
}

// openSessions writes the sessions and returns the secrets of some of them,
// from all parts of the store.
func (c sessionSeed) openSessions(ctx context.Context, store *storage.Store, users []string) (secrets []string, err error) {
	const seconds = int64(time.Second)
	now := store.Now()
	every := max(c.Sessions/knownSessions, 1)
	for from := int64(0); from < c.Sessions; from += sessionsAtOnce {
		err := store.Update(ctx, func(t storage.Txn) error {
			for n := from; n < min(from+sessionsAtOnce, c.Sessions); n++ {
				hash, purge := sha256.Sum256([]byte(secretOf(n))), now.Add(seededLifetime)
				s := session{
					Hash: hash[:], ID: fmt.Sprintf("ses_%022d", n), UserID: users[n%c.Users], Epoch: c.Epoch, Created: now.Unix(), Seen: now.Unix(),
					Idle: int64(seededIdle) / seconds, Lifetime: int64(seededLifetime) / seconds,
					Address: "192.0.2.1", Agent: browserName,
				}
				if err := t.Set(append([]byte("session/"), hash[:]...), storage.EncodeRecord(s), purge); err != nil {
					return err
				}
				if err := t.Set([]byte("usersession/"+s.UserID+"/"+s.ID), hash[:], purge); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for n := int64(0); n < c.Sessions && len(secrets) < knownSessions; n += every {
		secrets = append(secrets, secretOf(n))
	}
	return secrets, nil
}

// secretOf returns the secret of a session. It is as long as a random one.
func secretOf(n int64) string { return fmt.Sprintf("%043d", n) }
