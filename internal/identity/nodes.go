package identity

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
)

// This file keeps the credentials in memory equal to the store. A node refreshes them after each of its
// own changes. On a shared store, the transaction of a change also writes one of these topics into the
// feed, so that all nodes refresh theirs.
const (
	keyTopic   = "key/"   // followed by the id of a key that has changed
	tokenTopic = "token/" // followed by the id of a user whose access token has changed
	userTopic  = "user/"  // followed by the id of a user whose token and keys have changed
)

// seenPatience is how long a change that takes something away waits until every node has read it. A
// silent node is ended after three seconds; see [storage.Store.WaitUntilSeen].
const seenPatience = 4 * time.Second

// OnTopics refreshes the credentials that the topics of the feed name; see [storage.Follower]. It ignores
// topics of other packages. After an error nothing has changed.
func (d *Directory) OnTopics(ctx context.Context, topics []string) error {
	var keys, users, owners []string
	seen := make(map[string]bool, len(topics))
	for _, topic := range topics {
		if seen[topic] {
			continue
		}
		seen[topic] = true
		if id, found := strings.CutPrefix(topic, keyTopic); found {
			keys = append(keys, id)
		} else if id, found := strings.CutPrefix(topic, tokenTopic); found {
			users = append(users, id)
		} else if id, found := strings.CutPrefix(topic, userTopic); found {
			users, owners = append(users, id), append(owners, id)
		}
	}
	if users == nil && keys == nil {
		return nil
	}
	return d.refresh(ctx, keys, users, owners)
}

// refresh updates the tables in memory to the committed state of these keys, of the access tokens of
// these users, and of all keys of these owners. A record that cannot be read is removed from the
// table, so that no revoked key is accepted. After an error nothing has changed.
func (d *Directory) refresh(ctx context.Context, keys, users, owners []string) error {
	d.refreshing.Lock()
	defer d.refreshing.Unlock()
	var tokens map[string]credential.Entries[Account]
	var principals map[string]credential.Entries[Principal]
	err := d.store.View(ctx, func(r storage.Reader) error {
		tokens, principals = make(map[string]credential.Entries[Account]), make(map[string]credential.Entries[Principal])
		for _, id := range users {
			user, err := mustGet(r, &userTable, id)
			if err := mayReadNext(err); err != nil {
				return err
			}
			if tokens[id] = nil; err == nil {
				tokens[id] = user.inForce()
			}
		}
		all := keys
		for _, id := range owners {
			owned, err := collect(keyTable.PrimaryKeys(r, userKeys.Under(id)))
			if err != nil {
				return err
			}
			all = append(all[:len(all):len(all)], owned...)
		}
		for _, id := range all {
			entries, err := entriesOf(r, id)
			if err := mayReadNext(err); err != nil {
				return err
			}
			principals[id] = entries
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, entries := range tokens {
		d.tokens.Put(id, entries)
	}
	for id, entries := range principals {
		d.keys.Put(id, entries)
	}
	return nil
}

// mayReadNext returns err unless it concerns one record alone.
func mayReadNext(err error) error {
	if errors.Is(err, errGone) || errors.Is(err, storage.ErrUnreadable) {
		return nil
	}
	return err
}

// entriesOf returns the hashes of a key that are in force. It returns none after an error.
func entriesOf(r storage.Reader, id string) (credential.Entries[Principal], error) {
	key, err := mustGet(r, &keyTable, id)
	if err != nil {
		return nil, err
	}
	user, err := mustGet(r, &userTable, key.UserID)
	if err != nil {
		return nil, err
	}
	return key.inForce(user), nil
}

// refreshOwn is refresh after a change by this node. The context of the request does not end it,
// because the change may be committed. If a lone store cannot be read, the keys and tokens are removed
// from memory, so that no revoked one is accepted. On a shared store they stay: if the change was
// committed, the feed names them again, and a node that cannot read the feed admits no calls.
func (d *Directory) refreshOwn(keys, users []string) {
	if err := d.refresh(context.Background(), keys, users, nil); err == nil || d.store.Shared() {
		return
	}
	for _, id := range keys {
		d.keys.Put(id, nil)
	}
	for _, id := range users {
		d.tokens.Put(id, nil)
	}
}

// tell writes the topics of these ids into the feed, in the transaction of their change.
func (d *Directory) tell(t storage.Txn, topic string, ids ...string) error {
	for _, id := range ids {
		if err := d.store.Tell(t, topic+id); err != nil {
			return err
		}
	}
	return nil
}

// takesFrom reports whether a change of credentials may take something from their holders.
func takesFrom[Holder any](before, after credential.Entries[Holder]) bool {
	return len(before) > 0 && !reflect.DeepEqual(before, after)
}

// inForceEverywhere waits until all nodes of a shared store have read what was committed before. If it
// cannot confirm that, it returns errNotConfirmed, and the change stays.
func (d *Directory) inForceEverywhere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, seenPatience)
	defer cancel()
	if err := d.store.WaitUntilSeen(ctx); err != nil {
		return fmt.Errorf("%w: %w", errNotConfirmed, err)
	}
	return nil
}

var errNotConfirmed = fault.New(fault.StoreUnavailable,
	"the change is saved, but it could not be confirmed that every gateway has read it; a gateway that cannot read changes refuses all calls after a second")
