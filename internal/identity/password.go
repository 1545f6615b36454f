package identity

import (
	"context"
	_ "embed"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ChangePassword replaces the password of an authenticated user, by the old one. It ends the
// user's other sessions and access token, and returns the new secret of the session that asks.
//
// A user without a password who has a factor sets one by a step-up. A user with neither needs an
// operator, so that a stolen access token cannot set a password.
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
		return a.event("password.change", ""), err
	})
	return renewed, err
}

// mayChangePassword checks the old password, if there is one, and returns its user.
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

// SetPassword replaces the password of a user, for an operator. It ends the user's sessions and
// access token.
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

// setPassword replaces the hash of the user's password and ends the operator's code in force.
func (u *userRecord) setPassword(hash string) {
	u.Password, u.ResetHash = hash, Hash{}
}

// The length of a password: code points, as NIST SP 800-63B counts them, and
// bytes.
const (
	minPassword      = 8
	maxPassword      = 128
	maxPasswordBytes = 1024
)

// commonPasswords are the passwords that are tried first, one a line, in lower
// case: those of the usual lists of leaked ones that would be long enough.
//
//go:embed common_passwords.txt
var commonPasswords string

// CheckPassword refuses a new password that is too short, too long, or easy to guess for the user
// of this name; the name is empty if it is not known. A password is taken as it was typed: it is
// not trimmed, folded or normalised, neither here nor when it is hashed.
func CheckPassword(userName, password string) *fault.Fault {
	n := utf8.RuneCountInString(password)
	switch {
	case password == "":
		return fault.At(fault.MissingParameter, "password", "a password is required")
	case !utf8.ValidString(password):
		return fault.At(fault.InvalidParameter, "password", "a password is text in UTF-8")
	case n < minPassword || n > maxPassword || len(password) > maxPasswordBytes:
		return fault.At(fault.InvalidParameter, "password", "a password has %d to %d characters, this has %d", minPassword, maxPassword, n)
	case isCommon(password):
		return fault.At(fault.InvalidParameter, "password", "this password is among the first that are guessed; take another")
	}
	if folded, refusal := foldName(userName); refusal == nil && (strings.EqualFold(password, userName) || strings.EqualFold(password, folded)) {
		return fault.At(fault.InvalidParameter, "password", "a password is not the name of its user")
	}
	return nil
}

// isCommon reports whether a password is on the list, in any case, or repeats one character.
func isCommon(password string) bool {
	first, _ := utf8.DecodeRuneInString(password)
	if strings.Trim(password, string(first)) == "" {
		return true
	}
	return strings.Contains(commonPasswords, "\n"+strings.ToLower(password)+"\n") && !strings.Contains(password, "\n")
}
