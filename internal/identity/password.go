package identity

import (
	"context"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ChangePassword gives who is logged in a new password, by the old one. It ends
// his other sessions and his access token; the session that asks gets a new
// secret, which is returned.
//
// Whoever has no password yet, and came in by a passkey, sets one without. Who
// has neither is sent to an operator: a stolen access token must not become a
// password.
func (d *Directory) ChangePassword(ctx context.Context, a *Account, password, replacement string) (Secret, error) {
	if err := whole(a); err != nil {
		return "", err
	}
	if refusal := CheckPassword(a.UserName, replacement); refusal != nil {
		return "", fault.At(refusal.Code, "new_password", "%s", refusal.Message)
	}
	line, err := d.hasher.enter()
	if err != nil {
		return "", err
	}
	defer line.leave()
	before, err := d.mayChangePassword(ctx, line, a, password)
	if err != nil {
		return "", err
	}
	hash, err := line.hash(ctx, replacement)
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
		return &audit.Event{Actor: a.UserID, Action: "password.change", User: a.UserID, Address: a.Address}, err
	})
	if err != nil {
		return "", err
	}
	return renewed, nil
}

// mayChangePassword asks for the old password, if there is one, and returns the
// user whose it was.
func (d *Directory) mayChangePassword(ctx context.Context, line place, a *Account, password string) (*userRecord, error) {
	var user *userRecord
	var due []string
	err := d.store.View(ctx, func(r storage.Reader) (err error) {
		if user, err = mustGet(r, &userTable, a.UserID); err != nil {
			return err
		}
		due, err = factorsDue(r, a.UserID)
		return err
	})
	if err != nil {
		return nil, fault.OfStore(err)
	}
	if user.Password == "" && due != nil {
		return user, d.Fresh(ctx, a)
	}
	return d.proved(ctx, line, a, password)
}

// SetPassword gives a user a new password for an operator. It ends whatever the
// user came in by before: his sessions and his access token.
func (d *Directory) SetPassword(ctx context.Context, actor, idOrName, password string) error {
	user, err := d.User(ctx, idOrName)
	if err != nil {
		return err
	}
	if refusal := CheckPassword(user.Name, password); refusal != nil {
		return refusal
	}
	line, err := d.hasher.enter()
	if err != nil {
		return err
	}
	defer line.leave()
	hash, err := line.hash(ctx, password)
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

// setPassword makes this the hash of a user's password. An operator's code that
// is in force is for the one before, and ends.
func (u *userRecord) setPassword(hash string) {
	u.Password, u.ResetHash = hash, nil
}
