package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

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
	var has Factors
	err := d.store.View(ctx, func(r storage.Reader) error {
		totp, err := totpTable.GetOrZero(r, userID)
		if err != nil {
			return err
		}
		codes, err := backupTable.GetOrZero(r, userID)
		if err != nil {
			return err
		}
		has = Factors{TOTP: totp.Seed != nil, BackupCodes: codes.Left, Passkeys: []Passkey{}}
		passkeys, err := passkeysOf(r, userID)
		for _, passkey := range passkeys {
			has.Passkeys = append(has.Passkeys, passkey.Passkey)
		}
		return err
	})
	return has, fault.OfStore(err)
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
	var due []string
	err = d.store.View(ctx, func(r storage.Reader) (err error) {
		if due, err = factorsDue(r, a.UserID); err != nil || due == nil {
			return err
		}
		return d.fresh(r, a)
	})
	switch {
	case err != nil:
		return false, fault.OfStore(err)
	case due != nil:
		return false, nil
	case password == "":
		return false, fault.At(fault.MissingParameter, "password", "the first factor of an account is set up with its password")
	}
	return true, d.provePassword(ctx, a, password)
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
	err := d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
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
			totpGuard.forgive(t, user.ID), backupGuard.forgive(t, user.ID))
		if err != nil {
			return nil, err
		}
		if err := endHalfOpen(t, user.ID); err != nil {
			return nil, err
		}
		return &audit.Event{Actor: actor, Action: "user.reset_2fa", User: user.ID}, endStepUps(t, user.ID)
	})
	return fault.OfStore(err)
}

// handle returns the user handle of a user, and draws it the first time.
func (d *Directory) handle(ctx context.Context, userID string) ([]byte, error) {
	drawn := make([]byte, 64)
	_, _ = rand.Read(drawn) // never fails: it ends the process instead
	var handle []byte
	err := d.store.View(ctx, func(r storage.Reader) error {
		record, err := factorTable.GetOrZero(r, userID)
		if err == nil {
			handle = record.Handle
		}
		return err
	})
	if err != nil || handle != nil {
		return handle, err
	}
	err = d.store.Update(ctx, func(t storage.Txn) error {
		record, err := factorTable.GetOrZero(t, userID)
		if err != nil {
			return err
		}
		if handle = record.Handle; handle != nil {
			return nil
		}
		handle = slices.Clone(drawn)
		return factorTable.Put(t, nil, &factorRecord{UserID: userID, Handle: handle, Epoch: record.Epoch})
	})
	return handle, err
}
