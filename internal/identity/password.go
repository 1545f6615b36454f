package identity

import (
	"context"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ChangePassword replaces the password of an authenticated user, who proves the old one. It ends the
// user's other sessions and access token, and returns the new secret of the session of the request.
//
// A user with a factor but without a password needs a step-up to set one. A user with neither needs an
// operator, so that a thief of the access token cannot set a password.
func (d *Directory) ChangePassword(ctx context.Context, a *Account, password, replacement string) (Secret, error) {
	if err := refuseHalfOpen(a); err != nil {
		return "", err
	}
	if refusal := checkPassword(a.UserName, replacement); refusal != nil {
		return "", refusal.WithParam("new_password")
	}
	place, err := d.hasher.Enter()
	if err != nil {
		return "", err
	}
	defer place.Leave()
	before, err := d.mayChangePassword(ctx, place, a, password)
	if err != nil {
		return "", err
	}
	hash, err := place.Hash(ctx, replacement)
	if err != nil {
		return "", err
	}
	var renewed Secret
	_, err = d.changeAccess(ctx, a.UserID, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		session, _, err := d.own(t, a)
		if err != nil {
			return nil, err
		}
		if user.Password != before.Password {
			return nil, fault.New(fault.Conflict, "the password was changed at this moment by another request")
		}
		user.setPassword(hash)
		renewed, err = endAccess(t, user, session, d.store.Now())
		return a.event("password.change", ""), err
	})
	return renewed, err
}

// mayChangePassword checks the old password, if there is one, and returns the user.
func (d *Directory) mayChangePassword(ctx context.Context, place password.Place, a *Account, password string) (*userRecord, error) {
	var user *userRecord
	var due []string
	err := d.store.View(ctx, func(r storage.Reader) (err error) {
		if user, err = mustGet(r, &userTable, a.UserID); err != nil {
			return err
		}
		due, err = factor.Due(r, a.UserID)
		return err
	})
	if err != nil {
		return nil, fault.OfStore(err)
	}
	if user.Password == "" && due != nil {
		return user, d.Fresh(ctx, a)
	}
	return d.proved(ctx, place, a, password)
}

// SetPassword replaces the password of a user on behalf of an operator. It ends the user's sessions and
// access token.
func (d *Directory) SetPassword(ctx context.Context, actor, idOrName, password string) error {
	user, err := d.User(ctx, idOrName)
	if err != nil {
		return err
	}
	if refusal := checkPassword(user.Name, password); refusal != nil {
		return refusal
	}
	hash, err := d.hashNew(ctx, d.hasher.Enter, password)
	if err != nil {
		return err
	}
	_, err = d.changeAccess(ctx, user.ID, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		user.setPassword(hash)
		_, err := endAccess(t, user, nil, d.store.Now())
		return &audit.Event{Actor: actor, Action: "password.set", User: user.ID}, err
	})
	return err
}

// hashNew returns the hash of a new password. The argument enter returns the place
// in the queue.
func (d *Directory) hashNew(ctx context.Context, enter func() (password.Place, error), text string) (string, error) {
	place, err := enter()
	if err != nil {
		return "", err
	}
	defer place.Leave()
	return place.Hash(ctx, text)
}

// setPassword replaces the hash of the user's password and ends the codes in force.
func (u *userRecord) setPassword(hash string) {
	u.Password, u.ResetHash, u.Mail.ResetHash = hash, credential.Hash{}, credential.Hash{}
}

// checkPassword returns the fault of [password.Check] for a new password of the user with this
// name. The name is empty if it is not known.
func checkPassword(userName, text string) *fault.Fault {
	if folded, refusal := foldName(userName); refusal == nil {
		return password.Check(text, userName, folded)
	}
	return password.Check(text)
}
