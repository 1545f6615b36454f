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

// crowd is who is logged in, in a store.
type crowd struct {
	Users    int64
	Sessions int64
}

// sessionsEach is how many sessions a user of a crowd has.
const sessionsEach = 10

// crowded is the console of a gateway with so many sessions.
func crowded(sessions int64) side {
	return side{
		name: fmt.Sprintf("people-%d", sessions), caddyfile: consoleCaddyfile, reads: selfPath,
		crowd: crowd{Users: max(sessions/sessionsEach, 1), Sessions: max(sessions, 1)},
	}
}

// fillCrowd gives a site the store of a gateway that many people use.
func (b *bench) fillCrowd(ctx context.Context, s *site) error {
	return b.fill(ctx, s, roleUsher, s.crowd, &s.keys)
}

const (
	ushers          = 64   // how many make users at once
	sessionsAtOnce  = 1000 // in a transaction
	knownSessions   = 4096 // how many of the sessions are read by
	crowdedIdle     = 24 * time.Hour
	crowdedLifetime = 30 * 24 * time.Hour
)

// fill makes the crowd, and returns the secrets of some of its sessions.
func (c crowd) fill(ctx context.Context, b *books) (secrets []string, err error) {
	users, err := c.enrol(ctx, b.store)
	if err != nil {
		return nil, err
	}
	return c.letIn(ctx, b.store, users)
}

// enrol makes the users, as an operator does, and returns their ids.
func (c crowd) enrol(ctx context.Context, store *storage.Store) ([]string, error) {
	directory, err := identity.Open(ctx, store, nil, unread())
	if err != nil {
		return nil, err
	}
	ids, errs := make([]string, c.Users), make([]error, ushers)
	var all sync.WaitGroup
	for usher := range ushers {
		all.Go(func() {
			for n := usher; n < len(ids) && errs[usher] == nil; n += ushers {
				var user identity.User
				user, errs[usher] = directory.CreateUser(ctx, "operator", userName(n))
				ids[n] = user.ID
			}
		})
	}
	all.Wait()
	return ids, errors.Join(errs...)
}

// session is one as the package identity keeps it, under session/ and the hash
// of its secret. A million of them are not opened by as many passwords; a run
// fails when those that are written here do not let their users in.
type session struct {
	ID       string `json:"id"`
	UserID   string `json:"user_id"`
	Created  int64  `json:"created"`
	Seen     int64  `json:"seen"`
	Idle     int64  `json:"idle"`
	Lifetime int64  `json:"lifetime"`
	Address  string `json:"address"`
	Agent    string `json:"agent"`
}

// letIn opens the sessions, and returns the secrets of some of them, from all
// parts of the store.
func (c crowd) letIn(ctx context.Context, store *storage.Store, users []string) (secrets []string, err error) {
	const seconds = int64(time.Second)
	now := store.Now()
	every := max(c.Sessions/knownSessions, 1)
	for from := int64(0); from < c.Sessions; from += sessionsAtOnce {
		err := store.Update(ctx, func(t storage.Txn) error {
			for n := from; n < min(from+sessionsAtOnce, c.Sessions); n++ {
				s := session{
					ID: fmt.Sprintf("ses_%022d", n), UserID: users[n%c.Users], Created: now.Unix(), Seen: now.Unix(),
					Idle: int64(crowdedIdle) / seconds, Lifetime: int64(crowdedLifetime) / seconds,
					Address: "192.0.2.1", Agent: browserName,
				}
				hash, purge := sha256.Sum256([]byte(secretOf(n))), now.Add(crowdedLifetime)
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

// secretOf is the secret of a session: as long as those that are drawn.
func secretOf(n int64) string { return fmt.Sprintf("%043d", n) }
