package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Factors are the second factors of a user.
type Factors struct {
	TOTP        bool      `json:"totp"`
	BackupCodes int       `json:"backup_codes"` // how many are left
	Passkeys    []Passkey `json:"passkeys"`     // oldest first
}

// The names of the factors, as verification and log-in ask for them.
const (
	methodCode    = "2fa"     // a TOTP code, or a backup code in its place
	methodPasskey = "passkey" // an answer of a passkey
)

// factorRecord is what all factors of a user have in common.
type factorRecord struct {
	UserID string `json:"user_id"`

	// Handle is the user handle of WebAuthn: 64 random bytes, because passkeys keep it and show
	// it to their holder (WebAuthn section 14.6.1).
	Handle []byte `json:"handle,omitempty"`

	// Epoch is in every step-up, passkey assertion and ceremony of the user. Writing a higher one
	// ends all of them.
	Epoch int64 `json:"epoch,omitempty"`
}

// factorEpoch returns the epoch of a user's factors.
func factorEpoch(r storage.Reader, userID string) (int64, error) {
	record, err := factorTable.GetOrZero(r, userID)
	if err != nil {
		return 0, err
	}
	return record.Epoch, nil
}

// Factors returns the factors of a user.
func (d *Directory) Factors(ctx context.Context, userID string) (Factors, error) {
	return view(ctx, d, func(r storage.Reader) (has Factors, err error) {
		totp, err := totpTable.GetOrZero(r, userID)
		if err != nil {
			return has, err
		}
		codes, err := backupTable.GetOrZero(r, userID)
		if err != nil {
			return has, err
		}
		has = Factors{TOTP: totp.Seed != nil, BackupCodes: codes.Left, Passkeys: []Passkey{}}
		passkeys, err := passkeysOf(r, userID)
		for _, passkey := range passkeys {
			has.Passkeys = append(has.Passkeys, passkey.Passkey)
		}
		return has, err
	})
}

// factorsDue returns the names of the factors that a user has, one of which is due after the
// password; nil if there is none.
func factorsDue(r storage.Reader, userID string) ([]string, error) {
	var due []string
	totp, err := totpTable.GetOrZero(r, userID)
	if err != nil {
		return nil, err
	}
	if totp.Seed != nil {
		due = append(due, methodCode)
	}
	for _, err := range passkeyTable.PrimaryKeys(r, passkeyTable.Under(userID)) {
		if err != nil {
			return nil, err
		}
		return append(due, methodPasskey), nil
	}
	return due, nil
}

// whole fails for a session whose second factor is still due.
func whole(a *Account) error {
	if a.HalfOpen {
		return fault.New(fault.SecondFactorRequired, "the second factor of this log-in is still due")
	}
	return nil
}

// mayEnrol fails unless a user may enrol a new factor. The first one needs the password, so that
// a stolen cookie cannot set up a factor; each further one needs a step-up. It returns which of
// the two it was, for [Directory.mayAdd].
func (d *Directory) mayEnrol(ctx context.Context, a *Account, password string) (first bool, err error) {
	if err := whole(a); err != nil {
		return false, err
	}
	due, err := view(ctx, d, func(r storage.Reader) ([]string, error) {
		due, err := factorsDue(r, a.UserID)
		if err != nil || due == nil {
			return due, err
		}
		return due, d.fresh(r, a)
	})
	switch {
	case err != nil:
		return false, err
	case due != nil:
		return false, nil
	case password == "":
		return false, fault.At(fault.MissingParameter, "password", "the first factor of an account is set up with its password")
	}
	return true, d.ProvePassword(ctx, a, password)
}

// mayAdd checks again in the transaction that adds a factor. An enrolment that began as the first
// factor fails if the user has set up another since, and any other fails if the step-up has
// expired since.
func (d *Directory) mayAdd(r storage.Reader, a *Account, first bool) error {
	if first {
		return onlyFactor(r, a.UserID)
	}
	return d.fresh(r, a)
}

// onlyFactor fails if the user has a factor by now, for what was begun while there was none.
func onlyFactor(r storage.Reader, userID string) error {
	due, err := factorsDue(r, userID)
	if err == nil && due != nil {
		err = fault.New(fault.VerificationRequired,
			"this was begun as the first factor, and another was set up since: verify by %s, and begin again", either(due))
	}
	return err
}

// locked maps an error of the master key to INTERNAL, and an error of the store as
// [fault.OfStore] does.
func locked(err error) error {
	for _, of := range []error{seal.ErrNoKey, seal.ErrBroken, seal.ErrWrongKey} {
		if errors.Is(err, of) {
			return fmt.Errorf("%w: %w", fault.New(fault.Internal, "what is sealed for this account cannot be used: the master key is missing or another one"), err)
		}
	}
	return fault.OfStore(err)
}

// ResetFactors removes TOTP, backup codes and passkeys of a user who has lost them, with the
// failures that were counted and all step-ups. The user logs in by the password alone and enrols
// again. Half-open sessions end, because the factor that is due in them is gone.
func (d *Directory) ResetFactors(ctx context.Context, actor, idOrName string) error {
	return d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		user, err := FindUser(t, idOrName)
		if err != nil {
			return nil, err
		}
		passkeys, err := passkeysOf(t, user.ID)
		if err != nil {
			return nil, err
		}
		for _, passkey := range passkeys {
			if err := passkeyTable.Put(t, passkey, nil); err != nil {
				return nil, err
			}
		}
		err = errors.Join(totpTable.Delete(t, user.ID), backupTable.Delete(t, user.ID),
			totpGuard.Forgive(t, user.ID), backupGuard.Forgive(t, user.ID))
		if err != nil {
			return nil, err
		}
		sessions, err := sessionsOf(t, user.ID)
		if err != nil {
			return nil, err
		}
		for _, s := range sessions {
			if s.Half {
				if err := removeSession(t, s); err != nil {
					return nil, err
				}
			}
		}
		return &audit.Event{Actor: actor, Action: "user.reset_2fa", User: user.ID}, endStepUps(t, user.ID)
	})
}

// ensureHandle draws the user handle of a user the first time.
func (d *Directory) ensureHandle(ctx context.Context, userID string) error {
	has := func(r storage.Reader) (*factorRecord, error) { return factorTable.GetOrZero(r, userID) }
	record, err := view(ctx, d, has)
	if err != nil || record.Handle != nil {
		return err
	}
	drawn := make([]byte, 64)
	_, _ = rand.Read(drawn) // never fails: it ends the process instead
	return fault.OfStore(d.store.Update(ctx, func(t storage.Txn) error {
		record, err := has(t)
		if err != nil || record.Handle != nil {
			return err
		}
		record.UserID, record.Handle = userID, drawn
		return factorTable.Put(t, nil, record)
	}))
}

// factorsChanged ends the step-ups of an account's user and returns the new secret of the session. It
// belongs to every change of a factor by the user.
func (d *Directory) factorsChanged(t storage.Txn, a *Account) (renewed Secret, err error) {
	if err := endStepUps(t, a.UserID); err != nil {
		return "", err
	}
	return d.renewSession(t, a)
}
