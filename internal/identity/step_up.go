package identity

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/storage"
)

// A step-up is a recent proof of a second factor. It is granted to the session or access token that
// proved the factor, never to the user: each other session needs a proof of its own.

// stepUpRecord is the step-up of a credential.
type stepUpRecord struct {
	Credential string `json:"credential"`
	UserID     string `json:"user_id"`
	Epoch      int64  `json:"epoch,omitempty"` // of the user's factors
	Method     string `json:"method"`
	Expires    int64  `json:"expires"` // Unix seconds
}

// assertionRecord is a passkey assertion that was checked for a credential. It is good for one
// verification.
type assertionRecord struct {
	Credential string `json:"credential"`
	UserID     string `json:"user_id"`
	Epoch      int64  `json:"epoch,omitempty"` // of the user's factors
	Passkey    string `json:"passkey"`         // its id; the passkey must still be there
	Expires    int64  `json:"expires"`         // Unix seconds
}

const (
	// assertionLifetime is how long a passkey assertion waits for its verification.
	assertionLifetime = 60 * time.Second

	// stepUpKept is how long an expired step-up is stored. Until then the caller is answered that it
	// has expired, rather than that there is none.
	stepUpKept = 24 * time.Hour
)

// Fresh reports an error unless the credential has a step-up in force, or the user has no factor:
// VERIFICATION_REQUIRED or VERIFICATION_EXPIRED. It fails with NOT_LOGGED_IN if the credential has
// ended or has another secret since, so that an earlier secret gains nothing by a later proof.
func (d *Directory) Fresh(ctx context.Context, a *Account) error {
	return fault.OfStore(d.store.View(ctx, func(r storage.Reader) error {
		if _, _, err := d.own(r, a); err != nil {
			return err
		}
		return d.fresh(r, a)
	}))
}

func (d *Directory) fresh(r storage.Reader, a *Account) error {
	due, err := factorsDue(r, a.UserID)
	if err != nil || due == nil {
		return err
	}
	epoch, err := factorEpoch(r, a.UserID)
	if err != nil {
		return err
	}
	have, err := stepUpTable.Get(r, a.Credential)
	switch {
	case err != nil:
		return err
	case have == nil || have.UserID != a.UserID || have.Epoch != epoch:
		return fault.New(fault.VerificationRequired, "this needs a verification first: by %s", either(due))
	case d.store.Now().Unix() >= have.Expires:
		return fault.New(fault.VerificationExpired, "the verification has expired; verify again by %s", either(due))
	}
	return nil
}

func either(methods []string) string { return strings.Join(methods, " or ") }

// grantStepUp grants the credential of an account a step-up that expires at a time in Unix seconds.
func (d *Directory) grantStepUp(t storage.Txn, a *Account, method string, expires int64) error {
	epoch, err := factorEpoch(t, a.UserID)
	if err != nil {
		return err
	}
	return stepUpTable.Put(t, nil, &stepUpRecord{Credential: a.Credential, UserID: a.UserID, Epoch: epoch, Method: method, Expires: expires})
}

// setAssertion records a passkey assertion for the credential of an account, in a ceremony of this
// epoch. It forgives attempts to use an assertion that was not there, so that this one can be used.
func (d *Directory) setAssertion(t storage.Txn, a *Account, epoch int64, passkeyID string) error {
	until := d.store.Now().Add(assertionLifetime)
	assertion := assertionRecord{Credential: a.Credential, UserID: a.UserID, Epoch: epoch, Passkey: passkeyID, Expires: until.Unix()}
	if err := assertionTable.Put(t, nil, &assertion); err != nil {
		return err
	}
	return attempts.Attempt{Limit: assertionAttempts, Subject: a.Credential}.Forgive(t)
}

// useAssertion deletes the passkey assertion of a credential. It fails if there is none in force.
func (d *Directory) useAssertion(t storage.Txn, a *Account) error {
	due, err := factorsDue(t, a.UserID)
	if err != nil {
		return err
	}
	if due == nil {
		return fault.New(fault.NoFactor, "no second factor is set up for this account")
	}
	epoch, err := factorEpoch(t, a.UserID)
	if err != nil {
		return err
	}
	have, err := assertionTable.GetOrZero(t, a.Credential)
	if err != nil {
		return err
	}
	there, err := passkeyTable.Has(t, a.UserID, have.Passkey)
	switch {
	case err != nil:
		return err
	case have.UserID != a.UserID, have.Epoch != epoch, !there, d.store.Now().Unix() >= have.Expires:
		return fault.New(fault.PasskeyNotCompleted, "no passkey has answered for this session within %s: begin and finish that first", attempts.InWords(assertionLifetime))
	}
	return assertionTable.Delete(t, a.Credential)
}

// endStepUp deletes the step-up of a credential that ends, its passkey assertion and its
// ceremonies. It only frees space: ids of credentials are never used again.
func endStepUp(t storage.Txn, credentialID string) error {
	return errors.Join(stepUpTable.Delete(t, credentialID), assertionTable.Delete(t, credentialID),
		ceremonyTable.Delete(t, purposeRegister, credentialID), ceremonyTable.Delete(t, purposeVerify, credentialID))
}

// endStepUps ends the step-ups, passkey assertions and ceremonies of all credentials of a user. It
// belongs to every change of a factor or of the password, because a step-up proves what was there
// before.
func endStepUps(t storage.Txn, userID string) error {
	factors, err := factorTable.GetOrZero(t, userID)
	if err != nil {
		return err
	}
	factors.UserID = userID
	factors.Epoch++
	return factorTable.Put(t, nil, factors)
}

var (
	errNoCode    = fault.At(fault.MissingParameter, "code", "code is required: the %d digits that the authenticator app shows, or a backup code", codeDigits)
	errCodeForm  = fault.At(fault.InvalidParameter, "code", "a code has %d digits, or is a backup code of %d letters and digits", codeDigits, backupDigits)
	errWrongCode = fault.At(fault.VerificationFailed, "code", "the code is wrong, was used before, or is no longer shown; wait for the next one")
	errNoTOTP    = fault.New(fault.NoFactor, "no authenticator app is set up for this account")

	errWrongBackupCode = fault.At(fault.VerificationFailed, "code", "the backup code is wrong, or was used before")
)

// proof is how a code of one kind is checked.
type proof struct {
	guard attempts.Guard
	due   func(storage.Reader) error      // fails if there is nothing to check a code against
	check func(storage.Txn) (bool, error) // reports whether the code is right, and uses it up
}

// proveCode checks a TOTP code or a backup code of a user. A right code is used up in one
// transaction with effect, whose event is recorded.
//
// A wrong code is VERIFICATION_FAILED. Too many of them are TOO_MANY_ATTEMPTS, and are not checked.
// A text that is no code is not counted.
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

// findTOTP returns the TOTP of a user. If it is off, it fails with NO_FACTOR.
func findTOTP(r storage.Reader, userID string) (*totpRecord, error) {
	record, err := totpTable.GetOrZero(r, userID)
	if err == nil && record.Seed == nil {
		err = errNoTOTP
	}
	return record, err
}

// prove counts an attempt durably and only then checks the code, so that parallel attempts are no
// more than the guard allows. The code, its effect and the end of the count are one transaction.
func (d *Directory) prove(ctx context.Context, a *Account, p proof, effect func(storage.Txn) (*audit.Event, error)) error {
	err := d.store.Update(ctx, func(t storage.Txn) error {
		if err := p.due(t); err != nil {
			return err
		}
		return p.guard.Take(t, d.store.Now(), a.UserID)
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
			return &audit.Event{Actor: Unknown, Action: "code.refuse", User: a.UserID, Detail: p.guard.What, Address: a.Address}, nil
		}
		if err := p.guard.Forgive(t, a.UserID); err != nil {
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

// proveAssertion uses up the passkey assertion of an account's credential in one transaction with
// effect. The attempt is counted first. It is not recorded in the audit, because it guesses nothing.
func (d *Directory) proveAssertion(ctx context.Context, a *Account, effect func(storage.Txn) (*audit.Event, error)) error {
	err := d.store.Update(ctx, func(t storage.Txn) error {
		if _, _, err := d.own(t, a); err != nil {
			return err
		}
		return attempts.Count(t, d.store.Now(), attempts.Attempt{Limit: assertionAttempts, Subject: a.Credential})
	})
	if err != nil {
		return fault.OfStore(err)
	}
	return d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := d.useAssertion(t, a); err != nil {
			return nil, err
		}
		return effect(t)
	})
}

// Verify grants the credential of an account a step-up, by a code, or by the passkey assertion that
// [Directory.FinishPasskeyVerify] has recorded for the same credential. It returns when the step-up
// expires, in Unix seconds; it ends with the credential. It also returns the new secret of the
// session.
func (d *Directory) Verify(ctx context.Context, a *Account, method, code string, lifetime time.Duration) (expires int64, renewed Secret, err error) {
	if err := whole(a); err != nil {
		return 0, "", err
	}
	expires = d.store.Now().Add(lifetime).Unix()
	grant := func(t storage.Txn) (*audit.Event, error) {
		if err := d.grantStepUp(t, a, method, expires); err != nil {
			return nil, err
		}
		renewed, err = d.renewSession(t, a)
		return a.event("verify", method), err
	}
	switch method {
	case methodCode:
		err = d.proveCode(ctx, a, code, grant)
	case methodPasskey:
		err = d.proveAssertion(ctx, a, grant)
	case "":
		err = fault.At(fault.MissingParameter, "method", "method is required: %s or %s", methodCode, methodPasskey)
	default:
		err = fault.At(fault.InvalidParameter, "method", "the method is %s or %s", methodCode, methodPasskey)
	}
	return expires, renewed, err
}
