package identity

import (
	"errors"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// The tables of this package. Nothing of it reads or writes its records in another way.
var (
	userTable = table.Table[userRecord]{
		Name:    "user",
		Key:     func(u *userRecord) table.Key { return table.Key{u.ID} },
		Indexes: []*table.Index[userRecord]{&userNames},
	}

	// userNames makes names unique in the form that foldName returns.
	userNames = table.Index[userRecord]{Name: "username", Unique: true, Fixed: true, Fields: func(u *userRecord) table.Key {
		folded, refusal := foldName(u.Name)
		if refusal != nil {
			return nil
		}
		return table.Key{folded}
	}}

	// No index leads from the hash of a secret to its key: Open reads every key and keeps them
	// in memory.
	keyTable = table.Table[keyRecord]{
		Name:    "key",
		Key:     func(k *keyRecord) table.Key { return table.Key{k.ID} },
		Indexes: []*table.Index[keyRecord]{&userKeys},
	}

	// userKeys lists the keys of a user by when they end, so that those in force and those that
	// ended first are found without reading records.
	userKeys = table.Index[keyRecord]{Name: "userkey", Fields: func(k *keyRecord) table.Key { return table.Key{k.UserID, k.ends()} }}

	consoleKeyTable = table.Table[consoleKey]{
		Name: "consolekey",
		Key:  func(k *consoleKey) table.Key { return table.Key{k.UserID} },
	}

	// The primary key of a session is the hash of its secret, by which every request of the
	// console finds it. The engine may drop a session when it is over for certain.
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

	factorTable = table.Table[factorRecord]{Name: "factor", Key: func(f *factorRecord) table.Key { return table.Key{f.UserID} }}
	totpTable   = table.Table[totpRecord]{Name: "totp", Key: func(r *totpRecord) table.Key { return table.Key{r.UserID} }}
	backupTable = table.Table[backupRecord]{Name: "backup", Key: func(r *backupRecord) table.Key { return table.Key{r.UserID} }}

	passkeyTable = table.Table[passkeyRecord]{
		Name:    "passkey",
		Key:     func(p *passkeyRecord) table.Key { return table.Key{p.UserID, p.ID} },
		Indexes: []*table.Index[passkeyRecord]{&passkeyCredentials},
	}

	// passkeyCredentials makes credential ids unique over all users.
	passkeyCredentials = table.Index[passkeyRecord]{Name: "passkeyid", Unique: true, Fixed: true, Fields: func(p *passkeyRecord) table.Key { return credentialKey(p.CredentialID) }}

	ceremonyTable = table.Table[ceremonyRecord]{
		Name:    "ceremony",
		Key:     func(c *ceremonyRecord) table.Key { return table.Key{c.Purpose, c.Owner} },
		Expires: func(c *ceremonyRecord) time.Time { return time.UnixMilli(c.Expires) },
	}

	stepUpTable = table.Table[stepUpRecord]{
		Name:    "step_up",
		Key:     func(s *stepUpRecord) table.Key { return table.Key{s.Credential} },
		Expires: func(s *stepUpRecord) time.Time { return time.Unix(s.Expires, 0).Add(stepUpKept) },
	}

	assertionTable = table.Table[assertionRecord]{
		Name:    "passkey_assertion",
		Key:     func(m *assertionRecord) table.Key { return table.Key{m.Credential} },
		Expires: func(m *assertionRecord) time.Time { return time.Unix(m.Expires, 0).Add(time.Second) },
	}

	resetTable = table.Table[resetRecord]{
		Name:    "resetcode",
		Key:     func(r *resetRecord) table.Key { return table.Key{string(r.Hash[:])} },
		Expires: func(r *resetRecord) time.Time { return time.Unix(r.Expires, 0) },
	}

	setupTable = table.Table[setupRecord]{Name: "setup", Key: func(*setupRecord) table.Key { return setupCode }}
)

// mustGet returns a record that is there, unless another request removed it.
func mustGet[R any](r storage.Reader, t *table.Table[R], key ...any) (*R, error) {
	rec, err := t.Get(r, key...)
	if err == nil && rec == nil {
		err = errGone
	}
	return rec, err
}

var errGone = errors.New("record is gone")
