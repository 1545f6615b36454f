package identity

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// What guards the codes. The counters are per user, over all sessions and
// restarts. Backup codes have one of their own: who has run into the pause of
// TOTP, or was driven there by another, still comes in by one of them.
var (
	totpGuard   = guard{what: "totp", pause: 5, wait: 15 * time.Minute, block: 100}
	backupGuard = guard{what: "backup_code", pause: 5, wait: 15 * time.Minute, block: 100}
)

var (
	errNoCode    = fault.At(fault.MissingParameter, "code", "code is required: the %d digits that the authenticator app shows, or a backup code", codeDigits)
	errCodeForm  = fault.At(fault.InvalidParameter, "code", "a code has %d digits, or is a backup code of %d letters and digits", codeDigits, backupDigits)
	errWrongCode = fault.At(fault.VerificationFailed, "code", "the code is wrong, was used before, or is no longer shown; wait for the next one")
	errNoTOTP    = fault.New(fault.NoFactor, "no authenticator app is set up for this account")

	errWrongBackupCode = fault.At(fault.VerificationFailed, "code", "the backup code is wrong, or was used before")
)

// proof is how a code of one kind is checked.
type proof struct {
	guard guard
	due   func(storage.Reader) error      // refuses when there is nothing to check a code against
	check func(storage.Txn) (bool, error) // tells whether the code is right, and uses it up
}

// proveCode checks a TOTP code or a backup code of a user. Where it is right, it
// is used up in one transaction with what effect does. The event of effect is
// recorded.
//
// A wrong code is VERIFICATION_FAILED; too many of them are TOO_MANY_ATTEMPTS,
// and are not looked at. A text that is no code is not counted.
func (d *Directory) proveCode(ctx context.Context, a *Account, code string, effect func(t storage.Txn) (*audit.Event, error)) error {
	p := proof{due: func(r storage.Reader) error {
		_, err := findTOTP(r, a.UserID)
		return err
	}}
	digits, backup := readBackupCode(code)
	switch {
	case code == "":
		return errNoCode
	case isCode(code):
		p.guard = totpGuard
		p.check = func(t storage.Txn) (bool, error) {
			record, err := findTOTP(t, a.UserID)
			if err != nil {
				return false, err
			}
			return d.acceptCode(t, record, record.Seed, code)
		}
	case backup:
		p.guard = backupGuard
		p.check = func(t storage.Txn) (bool, error) { return d.useBackupCode(t, a.UserID, digits) }
	default:
		return errCodeForm
	}
	return d.prove(ctx, a, p, effect)
}

// findTOTP returns the TOTP of a user who has it on; else NO_FACTOR.
func findTOTP(r storage.Reader, userID string) (*totpRecord, error) {
	record, err := totpTable.GetOrZero(r, userID)
	if err == nil && record.Seed == nil {
		err = errNoTOTP
	}
	return record, err
}

// prove counts an attempt, durably, and only then looks at the code: no number
// of parallel attempts is more than the guard lets pass. The code, its effect
// and the end of the count are one transaction.
func (d *Directory) prove(ctx context.Context, a *Account, p proof, effect func(storage.Txn) (*audit.Event, error)) error {
	err := d.store.Update(ctx, func(t storage.Txn) error {
		if err := p.due(t); err != nil {
			return err
		}
		return p.guard.take(t, d.store.Now(), a.UserID)
	})
	if err != nil {
		return fault.OfStore(err)
	}
	var right bool
	err = d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if right, err = p.check(t); err != nil {
			return nil, err
		}
		if !right {
			return &audit.Event{Actor: Unknown, Action: "code.refuse", User: a.UserID, Detail: p.guard.what, Address: a.Address}, nil
		}
		if err := p.guard.forgive(t, a.UserID); err != nil {
			return nil, err
		}
		return effect(t)
	})
	if err == nil && !right {
		if err = errWrongCode; p.guard == backupGuard {
			err = errWrongBackupCode
		}
	}
	return locked(err)
}

// proveMark checks the mark that a passkey has left with the credential of an
// account, and uses it up in one transaction with what effect does. The attempt is
// counted before anybody looks; it is told by the answer alone, since nothing was
// guessed.
func (d *Directory) proveMark(ctx context.Context, a *Account, effect func(storage.Txn) (*audit.Event, error)) error {
	err := d.store.Update(ctx, func(t storage.Txn) error {
		if _, _, err := d.own(t, a); err != nil {
			return err
		}
		have, err := ofMark.admit(t, d.store.Now(), a.Credential)
		if err != nil {
			return err
		}
		return ofMark.count(t, d.store.Now(), a.Credential, have)
	})
	if err != nil {
		return fault.OfStore(err)
	}
	return fault.OfStore(d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := d.useMark(t, a); err != nil {
			return nil, err
		}
		return effect(t)
	}))
}

// Verify proves that the person is there who owns the account: by a code, or by
// the passkey that [Directory.FinishPasskeyVerify] has just checked for the same
// session or token. The stamp that it leaves is in force until the time it
// returns, in Unix seconds, and dies with the session or token. The session
// gets a new secret, which it returns too.
func (d *Directory) Verify(ctx context.Context, a *Account, method, code string, lifetime time.Duration) (expires int64, renewed Secret, err error) {
	if err := whole(a); err != nil {
		return 0, "", err
	}
	expires = d.store.Now().Add(lifetime).Unix()
	stamp := func(t storage.Txn) (*audit.Event, error) {
		if err := d.setStamp(t, a, method, expires); err != nil {
			return nil, err
		}
		renewed, err = d.renewSession(t, a)
		return &audit.Event{Actor: a.UserID, Action: "verify", User: a.UserID, Detail: method, Address: a.Address}, err
	}
	switch method {
	case methodCode:
		err = d.proveCode(ctx, a, code, stamp)
	case methodPasskey:
		err = d.proveMark(ctx, a, stamp)
	case "":
		err = fault.At(fault.MissingParameter, "method", "method is required: %s or %s", methodCode, methodPasskey)
	default:
		err = fault.At(fault.InvalidParameter, "method", "the method is %s or %s", methodCode, methodPasskey)
	}
	if err != nil {
		return 0, "", err
	}
	return expires, renewed, nil
}
