package identity

import (
	"context"
	"iter"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/secure/precis"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// User is an account, which owns keys. The ledger keeps its money.
type User struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Created  int64  `json:"created"` // Unix seconds
	Disabled bool   `json:"disabled,omitempty"`
	Role     Role   `json:"role,omitempty"` // in the administration; empty: none

	// DisplayName is a name that the user chooses. It does not identify the user.
	DisplayName string `json:"display_name,omitempty"`

	// Email is the address that the user has confirmed, to which mails go. It does not identify the
	// user: users may share one.
	Email string `json:"email,omitempty"`

	// BalanceNotice is the balance of the wallet below which the user gets a mail; zero: none.
	BalanceNotice money.Amount `json:"balance_notice,omitempty"`

	Limits Limits `json:"limits,omitzero"`
	Token  *Token `json:"token,omitempty"` // nil if there is none
}

// userRecord is a stored user, with the hashes of the user's secrets.
type userRecord struct {
	User
	TokenHash credential.Hash `json:"token_hash,omitzero"` // SHA-256 of the access token

	// Password is a PHC string; empty if the user has no password.
	Password string `json:"password,omitempty"`

	// Epoch must equal the epoch of a session for the session to be in force. Writing a higher one
	// ends all sessions.
	Epoch int64 `json:"epoch,omitempty"`

	// ResetHash is the hash of the operator's code in force, if there is one.
	ResetHash credential.Hash `json:"reset_hash,omitzero"`

	Mail mailState `json:"mail,omitzero"`
}

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

// CreateUser creates a user. It returns CONFLICT for a name that is taken, in any case, and
// INVALID_PARAMETER for a name that could be read as an id.
func (d *Directory) CreateUser(ctx context.Context, actor, name string) (User, error) {
	folded, refusal := newName(name)
	if refusal != nil {
		return User{}, refusal
	}
	return d.createUser(ctx, actor, userRecord{User: User{Name: name}}, folded)
}

// CreateUserWithPassword is [Directory.CreateUser] with a password, in one transaction, so that the
// user never exists without it.
func (d *Directory) CreateUserWithPassword(ctx context.Context, actor, name, password string) (User, error) {
	folded, refusal := checkNewUser(name, password)
	if refusal != nil {
		return User{}, refusal
	}
	err := d.store.View(ctx, func(r storage.Reader) error { return checkNameFree(r, name, folded) })
	if err != nil {
		return User{}, fault.OfStore(err)
	}
	hash, err := d.hashNew(ctx, d.hasher.Enter, password)
	if err != nil {
		return User{}, err
	}
	return d.createUser(ctx, actor, userRecord{User: User{Name: name}, Password: hash}, folded)
}

// createUser creates a user. It sets the id and the time of the record.
func (d *Directory) createUser(ctx context.Context, actor string, user userRecord, folded string) (User, error) {
	user.ID, user.Created = credential.NewID(idClass), d.store.Now().Unix()
	err := d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		event := &audit.Event{Actor: actor, Action: "user.create", User: user.ID, Detail: user.Name}
		return event, addUser(t, user, folded)
	})
	return user.User, err
}

// Search returns at most limit users in the order of their names, behind the user with the id after:
// those whose names begin with text, in any case, or the user with this id. If there may be more,
// next is the cursor. It reads no other users.
func (d *Directory) Search(ctx context.Context, text, after string, limit int64) (users []User, next string, err error) {
	in, folded := userNames.Under(), ""
	if text != "" {
		var refusal *fault.Fault
		if folded, refusal = foldName(text); refusal != nil {
			return []User{}, "", nil // no name begins with it
		}
		in = in.From(folded).Before(folded + string(utf8.MaxRune))
	}
	err = d.store.View(ctx, func(r storage.Reader) error {
		users, next = []User{}, ""
		found, err := userTable.Get(r, text)
		if err != nil || found != nil {
			users = append(users, found.User)
			return err
		}
		if after != "" {
			last, err := userTable.Get(r, after)
			if err == nil && last == nil {
				err = fault.At(fault.InvalidParameter, "after", "after must be the id of a user")
			}
			if err != nil {
				return err
			}
			in = userTable.After(in, &userNames, last)
		}
		list, last, err := userTable.Matching(r, in, limit, limit, func(user *userRecord) bool {
			name, _ := foldName(user.Name)
			return strings.HasPrefix(name, folded) // the cursor may lie before the range
		})
		for _, user := range list {
			users = append(users, user.User)
		}
		if last != nil {
			next = last.ID
		}
		return err
	})
	return users, next, fault.OfStore(err)
}

// Users returns all users, in the order of their ids.
func (d *Directory) Users(ctx context.Context) ([]User, error) {
	return view(ctx, d, func(r storage.Reader) ([]User, error) {
		all, err := collect(userTable.Scan(r, userTable.Under()))
		users := make([]User, 0, len(all))
		for _, user := range all {
			users = append(users, user.User)
		}
		return users, err
	})
}

// CountUsers returns the number of users, or limit if there are more. It reads no user.
func (d *Directory) CountUsers(ctx context.Context, limit int) (int, error) {
	return view(ctx, d, func(r storage.Reader) (int, error) {
		keys, err := userTable.Under().Keys(r, limit)
		return len(keys), err
	})
}

// Names returns the names of the users with these ids, by id. It reads each of these users once, and no
// others. An id without a user is left out.
func (d *Directory) Names(ctx context.Context, ids iter.Seq[string]) (map[string]string, error) {
	return view(ctx, d, func(r storage.Reader) (map[string]string, error) {
		names, seen := make(map[string]string), make(map[string]bool)
		for id := range ids {
			if id == "" || seen[id] {
				continue
			}
			seen[id] = true
			user, err := userTable.Get(r, id)
			if err != nil {
				return nil, err
			}
			if user != nil {
				names[id] = user.Name
			}
		}
		return names, nil
	})
}

// User returns the user with this id or name.
func (d *Directory) User(ctx context.Context, idOrName string) (User, error) {
	return view(ctx, d, func(r storage.Reader) (User, error) {
		user, err := findUser(r, idOrName)
		if err != nil {
			return User{}, err
		}
		return user.User, nil
	})
}

// SetUserDisabled disables a user, with all keys, the access token and all sessions, or enables
// the user again. Ended sessions do not come back. It acts on the next request.
func (d *Directory) SetUserDisabled(ctx context.Context, actor, idOrName string, disabled bool) (User, error) {
	return d.changeUser(ctx, idOrName, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		if err := checkActor(t, actor); err != nil || user.Disabled == disabled {
			return nil, err
		}
		user.Disabled = disabled
		if !disabled {
			return &audit.Event{Actor: actor, Action: "user.enable", User: user.ID}, nil
		}
		_, err := endSessions(t, user, nil, d.store.Now())
		return &audit.Event{Actor: actor, Action: "user.disable", User: user.ID}, err
	})
}

// changeUser runs fn over a user in one transaction and updates the user's keys and token in
// memory. If it takes something away, that is no longer in force on any node when changeUser returns
// without an error.
func (d *Directory) changeUser(ctx context.Context, idOrName string, fn func(storage.Txn, *userRecord) (*audit.Event, error)) (User, error) {
	return d.changeCredentials(ctx, idOrName, true, fn)
}

// changeAccess is changeUser for a change that does not concern the user's keys.
func (d *Directory) changeAccess(ctx context.Context, idOrName string, fn func(storage.Txn, *userRecord) (*audit.Event, error)) (User, error) {
	return d.changeCredentials(ctx, idOrName, false, fn)
}

// changeCredentials runs fn over a user in one transaction and updates the credentials in memory. If fn
// returns no event, nothing is written.
func (d *Directory) changeCredentials(ctx context.Context, idOrName string, ofKeys bool, fn func(storage.Txn, *userRecord) (*audit.Event, error)) (User, error) {
	var user userRecord
	var keys []string
	var takes bool
	topic := tokenTopic
	if ofKeys {
		topic = userTopic
	}
	err := d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		keys, takes = nil, false
		before, err := findUser(t, idOrName)
		if err != nil {
			return nil, err
		}
		user = *before
		event, err := fn(t, &user)
		if err != nil {
			return nil, err
		}
		if ofKeys {
			if keys, err = collect(keyTable.PrimaryKeys(t, userKeys.Under(user.ID))); err != nil {
				return nil, err
			}
		}
		if event == nil {
			takes = true // as in changeKeyIn
			return nil, nil
		}
		takes = len(keys) > 0 || takesFrom(before.inForce(), user.inForce())
		if err := d.tell(t, topic, user.ID); err != nil {
			return nil, err
		}
		return event, userTable.Put(t, before, &user)
	})
	// Refresh also after an error: with an unknown outcome, a disabled user must not stay in memory.
	d.refreshOwn(keys, []string{user.ID})
	if err == nil && takes {
		err = d.inForceEverywhere(ctx)
	}
	return user.User, err
}

// findUser returns the user with this id or name. It looks for ids first, in their exact case. If there
// is none, it fails with NOT_FOUND.
func findUser(r storage.Reader, idOrName string) (*userRecord, error) {
	user, err := userTable.Get(r, idOrName)
	if err != nil || user != nil {
		return user, err
	}
	if folded, refusal := foldName(idOrName); refusal == nil {
		if user, err = userTable.Find(r, &userNames, folded); err != nil || user != nil {
			return user, err
		}
	}
	return nil, fault.At(fault.NotFound, "user", "there is no user %q", idOrName)
}
