package identity

import (
	"errors"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// The tables of this package. All its records are read and written through them.
var (
	userTable = table.Table[userRecord]{
		Name:    "user",
		Key:     func(u *userRecord) table.Key { return table.Key{u.ID} },
		Indexes: []*table.Index[userRecord]{&userNames, &userNotices, &userEmails},
	}

	// userNames makes names unique in the form that foldName returns.
	userNames = table.Index[userRecord]{Name: "username", Unique: true, Fixed: true, Fields: func(u *userRecord) table.Key {
		folded, refusal := foldName(u.Name)
		if refusal != nil {
			return nil
		}
		return table.Key{folded}
	}}

	// userNotices lists the users who get a mail when their balance is low.
	userNotices = table.Index[userRecord]{Name: "usernotice", Fields: func(u *userRecord) table.Key {
		if u.BalanceNotice <= 0 || u.Email == "" || u.Disabled {
			return nil
		}
		return table.Key{}
	}}

	// userEmails finds the users who have confirmed an address. Users may share one.
	userEmails = table.Index[userRecord]{Name: "useremail", Fields: func(u *userRecord) table.Key {
		if u.Email == "" {
			return nil
		}
		return table.Key{strings.ToLower(u.Email)}
	}}

	deviceTable = table.Table[deviceRecord]{
		Name: "device",
		Key:  func(d *deviceRecord) table.Key { return table.Key{d.UserID} },
	}

	// There is no index from the hash of a secret to its key, because Open loads all keys into
	// memory.
	keyTable = table.Table[keyRecord]{
		Name:    "key",
		Key:     func(k *keyRecord) table.Key { return table.Key{k.ID} },
		Indexes: []*table.Index[keyRecord]{&userKeys, &keyHints, &keyNames},
	}

	// userKeys lists the keys of a user by when they end. Those in force and those that ended
	// first are found without reading records.
	userKeys = table.Index[keyRecord]{Name: "userkey", Fields: func(k *keyRecord) table.Key { return table.Key{k.UserID, k.ends()} }}

	// keyHints and keyNames find keys by what people know of them. A key without a name is only in
	// keyHints.
	keyHints = table.Index[keyRecord]{Name: "keyhint", Fields: func(k *keyRecord) table.Key { return table.Key{k.Hint} }}
	keyNames = table.Index[keyRecord]{Name: "keyname", Fields: func(k *keyRecord) table.Key {
		folded := foldKeyName(k.Name)
		if folded == "" {
			return nil
		}
		return table.Key{folded}
	}}

	consoleKeyTable = table.Table[consoleKey]{
		Name:    "consolekey",
		Key:     func(k *consoleKey) table.Key { return table.Key{k.UserID} },
		Indexes: []*table.Index[consoleKey]{&consoleKeys},
	}

	// consoleKeys finds the user of a hidden key.
	consoleKeys = table.Index[consoleKey]{Name: "consolekeyid", Unique: true, Fixed: true, Fields: func(k *consoleKey) table.Key { return table.Key{k.ID} }}

	// The primary key of a session is the hash of its secret, because every request to the
	// console finds the session by it. The engine may drop a session after its latest end.
	sessionTable = table.Table[sessionRecord]{
		Name:    "session",
		Key:     func(s *sessionRecord) table.Key { return table.Key{string(s.Hash[:])} },
		Indexes: []*table.Index[sessionRecord]{&userSessions},
		Expires: func(s *sessionRecord) time.Time {
			if s.Half {
				return time.Unix(s.until(), 0)
			}
			return time.Unix(s.last(), 0)
		},
	}

	userSessions = table.Index[sessionRecord]{Name: "usersession", Unique: true, Fixed: true, Fields: func(s *sessionRecord) table.Key { return table.Key{s.UserID, s.ID} }}

	resetTable = table.Table[resetRecord]{
		Name:    "resetcode",
		Key:     func(r *resetRecord) table.Key { return table.Key{string(r.Hash[:])} },
		Expires: func(r *resetRecord) time.Time { return time.Unix(r.Expires, 0) },
	}

	setupTable = table.Table[setupRecord]{Name: "setup", Key: func(*setupRecord) table.Key { return setupCode }}
)

// foldKeyName returns the form of the name of a key by which it is found.
func foldKeyName(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// mustGet returns a record, or errGone if another request has removed it.
func mustGet[R any](r storage.Reader, t *table.Table[R], key ...any) (*R, error) {
	rec, err := t.Get(r, key...)
	if err == nil && rec == nil {
		err = errGone
	}
	return rec, err
}

var errGone = errors.New("the record no longer exists")
