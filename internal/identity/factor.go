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

// Factors is what a user has to prove himself by, beside his password.
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

	// Handle is the user handle of WebAuthn: 64 random bytes, since passkeys
	// keep it and show it to whoever holds them (WebAuthn section 14.6.1).
	Handle []byte `json:"handle,omitempty"`

	// Epoch is in every stamp, mark and ceremony of the user: a higher one ends
	// them all by this one write.
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

// Factors returns what a user has.
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

// factorsDue returns the names of the factors that a user has: what is still
// due after his password.
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

// whole refuses a session whose second factor is still due.
func whole(a *Account) error {
	if a.HalfOpen {
		return fault.New(fault.SecondFactorRequired, "the second factor of this log-in is still due")
	}
	return nil
}

// mayEnrol asks for what a new factor demands: the first one the password, so
// that a stolen cookie does not become a key for ever; each further one a
// verification by a factor that is there. It tells which of the two it was, for
// [Directory.mayAdd].
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

// mayAdd judges what was begun anew, in the transaction that ends it: what a
// password had begun as the first factor must not end beside one that its owner
// has set up since, nor what a verification had begun after that has expired.
func (d *Directory) mayAdd(r storage.Reader, a *Account, first bool) error {
	if first {
		return onlyFactor(r, a.UserID)
	}
	return d.fresh(r, a)
}

// onlyFactor refuses what was begun while its user had no factor, and he has
// one now.
func onlyFactor(r storage.Reader, userID string) error {
	due, err := factorsDue(r, userID)
	if err == nil && due != nil {
		err = fault.New(fault.VerificationRequired,
			"this was begun as the first factor, and another was set up since: verify by %s, and begin again", either(due))
	}
	return err
}

// locked turns an error of the store or of the master key into what a caller may
// hear of it. The rest is for the log.
func locked(err error) error {
	for _, of := range []error{seal.ErrNoKey, seal.ErrBroken, seal.ErrWrongKey} {
		if errors.Is(err, of) {
			return fmt.Errorf("%w: %w", fault.New(fault.Internal, "what is sealed for this account cannot be used: the master key is missing or another one"), err)
		}
	}
	return fault.OfStore(err)
}

// ResetFactors takes away all that a user has lost: TOTP, backup codes,
// passkeys, the attempts that were counted and what he has proven by them. He
// logs in by his password alone and enrols anew. Half-open sessions end: the
// factor that is due in them is gone.
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
		return &audit.Event{Actor: actor, Action: "user.reset_2fa", User: user.ID}, dropStamps(t, user.ID)
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
