package identity

import (
	"context"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// consoleKey is the hidden key of a user. Every task
// belongs to a key, and what he composes in the console to this one. It has no
// secret, so that nobody comes in by it, it is not among his keys, and it has
// neither a scope nor limits: only those of the user hold.
type consoleKey struct {
	UserID  string `json:"user_id"`
	ID      string `json:"id"`
	Created int64  `json:"created"` // Unix seconds
}

// Composer returns who asks for a task in the console: the user, by his hidden
// key. It is made when he does so for the first time.
func (d *Directory) Composer(ctx context.Context, a *Account) (*Principal, error) {
	if err := whole(a); err != nil {
		return nil, err
	}
	var p *Principal
	err := d.store.View(ctx, func(r storage.Reader) (err error) {
		p, err = d.composer(r, a)
		return err
	})
	if err != nil || p.KeyID != "" {
		return p, fault.OfStore(err)
	}
	key := consoleKey{UserID: a.UserID, ID: newID("key"), Created: d.store.Now().Unix()}
	err = d.Audit.Change(ctx, func(t storage.Txn) (_ *audit.Event, err error) {
		if p, err = d.composer(t, a); err != nil || p.KeyID != "" {
			return nil, err
		}
		p.KeyID = key.ID
		event := &audit.Event{Actor: a.UserID, Action: "key.console", User: a.UserID, Key: key.ID, Address: a.Address}
		return event, consoleKeyTable.Put(t, nil, &key)
	})
	if err != nil {
		return nil, fault.OfStore(err)
	}
	return p, nil
}

// composer returns who composes; his key is empty where there is none yet.
func (d *Directory) composer(r storage.Reader, a *Account) (*Principal, error) {
	_, user, err := d.own(r, a)
	if err != nil {
		return nil, err
	}
	key, err := consoleKeyTable.GetOrZero(r, user.ID)
	if err != nil {
		return nil, err
	}
	return &Principal{UserID: user.ID, UserName: user.Name, KeyID: key.ID, UserLimits: user.Limits}, nil
}
