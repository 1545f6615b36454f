package identity

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ResetCodeLife is how long an operator's one-time code for a new password may
// be used.
const ResetCodeLife = 24 * time.Hour

// resetRecord leads from a code to its user.
// The user's record names the one code in force: a new one, or a new password,
// ends it.
type resetRecord struct {
	Hash    []byte `json:"hash"` // of the code
	UserID  string `json:"user_id"`
	Expires int64  `json:"expires"` // Unix seconds
}

const resetPurpose = "reset"

// IssueResetCode returns a one-time code by which a user may set a new password,
// in place of the code before. He keeps the old password until then. A disabled
// user gets none.
func (d *Directory) IssueResetCode(ctx context.Context, actor, idOrName string) (Secret, error) {
	code := drawCode()
	hash, _ := hashCode(resetPurpose, code.Reveal())
	err := d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		_, event, err := alterUser(t, idOrName, func(user *userRecord) (*audit.Event, error) {
			if user.Disabled {
				return nil, fault.At(fault.Conflict, "user", "the user %q is disabled", user.Name)
			}
			until := d.store.Now().Add(ResetCodeLife)
			user.ResetHash = hash[:]
			if err := resetTable.Put(t, nil, &resetRecord{Hash: hash[:], UserID: user.ID, Expires: until.Unix()}); err != nil {
				return nil, err
			}
			return &audit.Event{Actor: actor, Action: "password.reset_code", User: user.ID}, nil
		})
		return event, err
	})
	if err != nil {
		return "", fault.OfStore(err)
	}
	return code, nil
}

// ResetPassword gives the user of a one-time code a new password and ends
// whatever he came in by before: his sessions and his access token. His factors
// stay. The code is used up in the transaction that sets the password; a password
// that is refused leaves it. Each attempt counts as one to log in from its
// address.
func (d *Directory) ResetPassword(ctx context.Context, code, password string, from Device, pace Pace) error {
	if refusal := CheckPassword("", password); refusal != nil {
		return refusal
	}
	if code == "" {
		return fault.At(fault.MissingParameter, "code", "code is required: the one that an operator has given you")
	}
	line, err := d.hasher.enterAnonymous()
	if err != nil {
		return err
	}
	defer line.leave()
	if err := d.countAttempts(ctx, pace.fromAddress(from)); err != nil {
		return err
	}
	hash, _ := hashCode(resetPurpose, code)
	var user *userRecord
	err = d.store.View(ctx, func(r storage.Reader) (err error) {
		user, err = d.resetting(r, hash)
		return err
	})
	if err != nil {
		return fault.OfStore(err)
	}
	if refusal := CheckPassword(user.Name, password); refusal != nil {
		return refusal
	}
	replacement, err := line.hash(ctx, password)
	if err != nil {
		return err
	}
	_, err = d.changeAccess(ctx, user.ID, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		if _, err := d.resetting(t, hash); err != nil {
			return nil, err
		}
		if err := resetTable.Delete(t, string(hash[:])); err != nil {
			return nil, err
		}
		user.setPassword(replacement)
		// Who has forgotten it has tried before, and may try the new one now.
		byName := pace.byName(user.Name)
		if err := byName.forgive(t, byName.whom); err != nil {
			return nil, err
		}
		_, err := endAccess(t, user, nil, d.store.Now())
		return &audit.Event{Actor: user.ID, Action: "password.reset", User: user.ID, Address: from.address()}, err
	})
	return err
}

// resetting returns the user whose code in force this is. What is wrong with a
// code that is not in force, nobody is told.
func (d *Directory) resetting(r storage.Reader, hash Hash) (*userRecord, error) {
	refusal := fault.At(fault.VerificationFailed, "code", "this code is wrong, was used or replaced, or is older than %s", inWords(ResetCodeLife))
	record, err := resetTable.Get(r, string(hash[:]))
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, refusal
	}
	user, err := userTable.Get(r, record.UserID)
	if err != nil {
		return nil, err
	}
	if user == nil || user.Disabled || string(user.ResetHash) != string(hash[:]) || d.store.Now().Unix() >= record.Expires {
		return nil, refusal
	}
	return user, nil
}
