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

// SetRole gives a user a role, or takes it with "". It acts on the next request. An actor who is a
// user must be another user and an administrator at the time of the change, so one administrator
// always remains.
func (d *Directory) SetRole(ctx context.Context, actor, idOrName string, role Role) (User, error) {
	return d.changeAccess(ctx, idOrName, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		if err := checkAdmin(t, actor, user.ID); err != nil || user.Role == role {
			return nil, err
		}
		before := user.Role
		user.Role = role
		return &audit.Event{Actor: actor, Action: "user.role", User: user.ID, Before: before.word(), After: role.word()}, nil
	})
}

// checkAdmin returns FORBIDDEN if the actor is a user who is not an enabled administrator, or is the
// user of the change. Administrators who remove each other at the same time thus cannot both succeed.
func checkAdmin(r storage.Reader, actor, userID string) error {
	if !strings.HasPrefix(actor, idClass+"_") {
		return nil
	}
	user, err := userTable.GetOrZero(r, actor)
	switch {
	case err != nil:
		return err
	case actor == userID:
		return fault.New(fault.Forbidden, "nobody acts on their own account here; ask another administrator or the operator")
	case user.Role != Admin || user.Disabled:
		return fault.New(fault.Forbidden, "you are no administrator any more")
	}
	return nil
}
