package identity

import (
	"cmp"
	"context"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Role is what a user may do to the accounts of others in the administration of the console. The
// table of its routes says which role may use which.
type Role string

// The roles. A user without a role has "".
const (
	Admin   Role = "admin"
	Support Role = "support"
	Finance Role = "finance"
)

// noRole is the word for no role in requests and in the audit.
const noRole = "none"

func (r Role) word() string { return cmp.Or(string(r), noRole) }

// ParseRole returns the role of a word: admin, support, finance, or none.
func ParseRole(word string) (Role, error) {
	switch role := Role(word); role {
	case Admin, Support, Finance:
		return role, nil
	case noRole:
		return "", nil
	}
	return "", fault.At(fault.InvalidParameter, "role", "role: %.64q is not a role; allowed: admin, support, finance, none", word)
}

// SetRole gives a user a role, or takes it with "". It acts on the next request. A new role ends
// the sessions and the access token of the user. The first administrator ends the set-up.
func (d *Directory) SetRole(ctx context.Context, actor, idOrName string, role Role) (User, error) {
	return d.changeAccess(ctx, idOrName, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		if err := checkActor(t, actor); err != nil || user.Role == role {
			return nil, err
		}
		before := user.Role
		user.Role = role
		event := &audit.Event{Actor: actor, Action: "user.role", User: user.ID, Before: before.word(), After: role.word()}
		if role == "" {
			return event, nil
		}
		if role == Admin { // there is an administrator: the code in the log is not needed
			if err := setupTable.Put(t, nil, &setupRecord{Used: true, Created: d.store.Now().Unix()}); err != nil {
				return nil, err
			}
		}
		// What was opened before may not have passed a second factor.
		_, err := endAccess(t, user, nil, d.store.Now())
		return event, err
	})
}

// checkActor returns FORBIDDEN if the actor is a user who is not an enabled administrator now. Nobody
// acts on their own account, so with this check in the transaction one administrator always remains,
// even if two remove each other at the same time.
func checkActor(r storage.Reader, actor string) error {
	if !strings.HasPrefix(actor, idClass+"_") {
		return nil
	}
	user, err := userTable.GetOrZero(r, actor)
	if err == nil && (user.Role != Admin || user.Disabled) {
		err = NeedsRole(user.Role, Admin)
	}
	return err
}

// NeedsRole returns FORBIDDEN for a user with the role has, which may be none: one of some roles is needed.
func NeedsRole(has Role, needed ...Role) error {
	words := make([]string, len(needed))
	for i, role := range needed {
		words[i] = string(role)
	}
	return fault.New(fault.Forbidden, "this needs a role: %s; your account has: %s", strings.Join(words, ", "), has.word())
}
