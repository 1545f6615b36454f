package identity

import (
	"context"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/secure/precis"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// User is an account: it owns keys and, with the ledger, money.
type User struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Created  int64  `json:"created"` // Unix seconds
	Disabled bool   `json:"disabled,omitempty"`
	Limits   Limits `json:"limits,omitzero"`
	Token    *Token `json:"token,omitempty"` // nil when there is none
}

// userRecord is a user as it is stored: with the SHA-256 of his access token.
type userRecord struct {
	User
	TokenHash []byte `json:"token_hash,omitempty"`
}

// Keys of the store: user/<id> is the record, username/<folded name> holds the
// id and makes the name unique.
const (
	userPrefix     = "user/"
	usernamePrefix = "username/"
)

func userKey(id string) []byte         { return []byte(userPrefix + id) }
func usernameKey(folded string) []byte { return []byte(usernamePrefix + folded) }

// foldName returns the form of a user name by which it is unique: RFC 8265,
// UsernameCaseMapped. Names have 1 to 64 code points.
func foldName(name string) (string, *fault.Fault) {
	if n := utf8.RuneCountInString(name); n < 1 || n > 64 {
		return "", fault.At(fault.InvalidParameter, "name", "a user name has 1 to 64 characters, this has %d", n)
	}
	folded, err := precis.UsernameCaseMapped.String(name)
	if err != nil {
		return "", fault.At(fault.InvalidParameter, "name", "a user name has letters, digits and punctuation, and no spaces or invisible characters")
	}
	return folded, nil
}

// idClass begins the ids of users.
const idClass = "usr"

// CreateUser makes a user. A name that is taken, in any case, is a CONFLICT; one
// that could be read as an id is refused.
func (d *Directory) CreateUser(ctx context.Context, actor, name string) (User, error) {
	folded, refusal := foldName(name)
	switch {
	case refusal != nil:
		return User{}, refusal
	case strings.HasPrefix(folded, idClass+"_"):
		return User{}, fault.At(fault.InvalidParameter, "name", "a user name does not begin with %s_, as ids do", idClass)
	}
	user := User{ID: newID(idClass), Name: name, Created: d.store.Now().Unix()}
	err := d.change(ctx, func(t storage.Txn) (*Event, error) {
		taken, err := t.Get(usernameKey(folded))
		if err != nil {
			return nil, err
		}
		if taken != nil {
			return nil, fault.At(fault.Conflict, "name", "there is a user named %q already", name)
		}
		if err := storage.SetRecord(t, usernameKey(folded), user.ID); err != nil {
			return nil, err
		}
		if err := storage.SetRecord(t, userKey(user.ID), userRecord{User: user}); err != nil {
			return nil, err
		}
		return &Event{Actor: actor, Action: "user.create", User: user.ID, Detail: user.Name}, nil
	})
	return user, unavailable(err)
}

// Users returns all users, in the order of their ids.
func (d *Directory) Users(ctx context.Context) ([]User, error) {
	users := []User{}
	err := d.store.View(ctx, func(r storage.Reader) error {
		return scanRecords(r, userPrefix, func(u User) { users = append(users, u) })
	})
	return users, unavailable(err)
}

// User returns the user with this id or name.
func (d *Directory) User(ctx context.Context, idOrName string) (User, error) {
	var user User
	err := d.store.View(ctx, func(r storage.Reader) (err error) {
		user, err = FindUser(r, idOrName)
		return err
	})
	return user, unavailable(err)
}

// SetUserDisabled shuts a user out, with all keys and the access token, or lets
// him in again. It holds from the next request on.
func (d *Directory) SetUserDisabled(ctx context.Context, actor, idOrName string, disabled bool) (User, error) {
	return d.changeUser(ctx, idOrName, func(user *userRecord) (*Event, error) {
		if user.Disabled == disabled {
			return nil, nil
		}
		user.Disabled = disabled
		action := "user.enable"
		if disabled {
			action = "user.disable"
		}
		return &Event{Actor: actor, Action: action, User: user.ID}, nil
	})
}

// changeUser runs fn over a user in one transaction and brings all of his keys
// and his token in memory up to it.
func (d *Directory) changeUser(ctx context.Context, idOrName string, fn func(*userRecord) (*Event, error)) (User, error) {
	var user userRecord
	var keys []string
	err := d.change(ctx, func(t storage.Txn) (event *Event, err error) {
		if user, event, err = alterUser(t, idOrName, fn); err != nil {
			return nil, err
		}
		keys, err = userKeyIDs(t, user.ID)
		return event, err
	})
	// Also after an error: an unknown outcome must not leave a shut-out user in.
	d.refreshKeys(keys...)
	d.refreshToken(user.ID)
	return user.User, unavailable(err)
}

// alterUser runs fn over the record of a user and, where it returns an event,
// writes what it has made of it.
func alterUser(t storage.Txn, idOrName string, fn func(*userRecord) (*Event, error)) (userRecord, *Event, error) {
	user, err := findUserRecord(t, idOrName)
	if err != nil {
		return user, nil, err
	}
	event, err := fn(&user)
	if err != nil || event == nil {
		return user, nil, err
	}
	return user, event, storage.SetRecord(t, userKey(user.ID), user)
}

// FindUser returns the user with this id or name, in somebody's transaction. Ids
// go first, in their exact case; one who is not there is NOT_FOUND.
func FindUser(r storage.Reader, idOrName string) (User, error) {
	record, err := findUserRecord(r, idOrName)
	return record.User, err
}

func findUserRecord(r storage.Reader, idOrName string) (userRecord, error) {
	var user userRecord
	found, err := storage.GetRecord(r, userKey(idOrName), &user)
	if err != nil || found {
		return user, err
	}
	if folded, refusal := foldName(idOrName); refusal == nil {
		var id string
		if found, err = storage.GetRecord(r, usernameKey(folded), &id); err != nil {
			return user, err
		}
		if found {
			if found, err = storage.GetRecord(r, userKey(id), &user); err != nil || found {
				return user, err
			}
		}
	}
	return user, fault.At(fault.NotFound, "user", "there is no user %q", idOrName)
}
