package factor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// A step-up is a recent proof of a second factor. It is granted to the session or access token that
// proved the factor, never to the user. Each other session needs its own proof.

// stepUpRecord is the step-up of a credential.
type stepUpRecord struct {
	Credential string `json:"credential"`
	UserID     string `json:"user_id"`
	Epoch      int64  `json:"epoch,omitempty"` // of the user's factors
	Method     string `json:"method"`
	Expires    int64  `json:"expires"` // Unix seconds
}

// assertionRecord is a passkey assertion that was checked for a credential. It can be used for one
// verification.
type assertionRecord struct {
	Credential string `json:"credential"`
	UserID     string `json:"user_id"`
	Epoch      int64  `json:"epoch,omitempty"` // of the user's factors
	Passkey    string `json:"passkey"`         // its id; the passkey must still exist
	Expires    int64  `json:"expires"`         // Unix seconds
}

var (
	stepUpTable = table.Table[stepUpRecord]{
		Name:    "step_up",
		Key:     func(s *stepUpRecord) table.Key { return table.Key{s.Credential} },
		Expires: func(s *stepUpRecord) time.Time { return time.Unix(s.Expires, 0).Add(stepUpKept) },
	}

	assertionTable = table.Table[assertionRecord]{
		Name:    "passkey_assertion",
		Key:     func(m *assertionRecord) table.Key { return table.Key{m.Credential} },
		Expires: func(m *assertionRecord) time.Time { return time.Unix(m.Expires, 0).Add(time.Second) },
	}
)

const (
	// assertionLifetime is how long a passkey assertion can be used.
	assertionLifetime = 60 * time.Second

	// stepUpKept is how long an expired step-up is stored. Until then the error reports that it has
	// expired, and not that there is none.
	stepUpKept = 24 * time.Hour

	// failurePause is the pause after a few wrong codes.
	failurePause = 15 * time.Minute

	// maxAssertionAttempts is how often a credential may try to use a missing passkey assertion in
	// an assertionWindow. A new assertion resets the count.
	maxAssertionAttempts = 20
	assertionWindow      = 15 * time.Minute
)

func (h Holder) assertionAttempt() attempts.Attempt {
	return attempts.Limit{What: "passkey_assertion", Most: maxAssertionAttempts, Per: assertionWindow}.Of(h.Credential)
}

// Fresh returns VERIFICATION_REQUIRED or VERIFICATION_EXPIRED unless the credential has a step-up in
// force or the user has no factor.
func (s *Service) Fresh(r storage.Reader, h Holder) error {
	due, epoch, err := dueNow(r, h.UserID)
	if err != nil || due == nil {
		return err
	}
	have, err := stepUpTable.Get(r, h.Credential)
	switch {
	case err != nil:
		return err
	case have == nil || have.UserID != h.UserID || have.Epoch != epoch:
		return fault.New(fault.VerificationRequired, "this needs a verification first: by %s", methods(due))
	case s.store.Now().Unix() >= have.Expires:
		return fault.New(fault.VerificationExpired, "the verification has expired; verify again by %s", methods(due))
	}
	return nil
}

// dueNow returns the result of Due, and the epoch of the factors.
func dueNow(r storage.Reader, userID string) (due []string, epoch int64, err error) {
	if due, err = Due(r, userID); err == nil {
		epoch, err = epochOf(r, userID)
	}
	return due, epoch, err
}

// methods are the names of factors, of which one is needed.
type methods []string

// String implements fmt.Stringer.
func (m methods) String() string { return strings.Join(m, " or ") }

// Chinese returns the methods in Chinese, for package fault.
func (m methods) Chinese() string { return strings.Join(m, " 或 ") }

// GrantStepUp grants a credential a step-up that expires at a time in Unix seconds.
func GrantStepUp(t storage.Txn, h Holder, method string, expires int64) error {
	epoch, err := epochOf(t, h.UserID)
	if err != nil {
		return err
	}
	return stepUpTable.Put(t, nil, &stepUpRecord{Credential: h.Credential, UserID: h.UserID, Epoch: epoch, Method: method, Expires: expires})
}

// setAssertion records a passkey assertion for a credential, in a ceremony of this epoch. It resets
// the count of attempts without an assertion, so that this one can be used.
func (s *Service) setAssertion(t storage.Txn, h Holder, epoch int64, passkeyID string) error {
	until := s.store.Now().Add(assertionLifetime)
	assertion := assertionRecord{Credential: h.Credential, UserID: h.UserID, Epoch: epoch, Passkey: passkeyID, Expires: until.Unix()}
	return errors.Join(assertionTable.Put(t, nil, &assertion), h.assertionAttempt().Reset(t))
}

// useAssertion deletes the passkey assertion of a credential. It fails if there is none in force.
func (s *Service) useAssertion(t storage.Txn, h Holder) error {
	due, epoch, err := dueNow(t, h.UserID)
	if err != nil {
		return err
	}
	if due == nil {
		return fault.New(fault.NoFactor, "no second factor is set up for this account")
	}
	have, err := assertionTable.GetOrZero(t, h.Credential)
	if err != nil {
		return err
	}
	exists, err := PasskeyTable.Has(t, h.UserID, have.Passkey)
	switch {
	case err != nil:
		return err
	case have.UserID != h.UserID, have.Epoch != epoch, !exists, s.store.Now().Unix() >= have.Expires:
		return fault.New(fault.PasskeyNotCompleted, "no passkey ceremony was completed in this session within %s; complete one first", attempts.Words(assertionLifetime))
	}
	return assertionTable.Delete(t, h.Credential)
}

// EndStepUp deletes the step-up of a credential that ends, its passkey assertion and its
// ceremonies. It only frees space: ids of credentials are never used again.
func EndStepUp(t storage.Txn, credentialID string) error {
	return errors.Join(stepUpTable.Delete(t, credentialID), assertionTable.Delete(t, credentialID),
		ceremonyTable.Delete(t, purposeRegister, credentialID), ceremonyTable.Delete(t, purposeVerify, credentialID))
}

// EndStepUps ends the step-ups, passkey assertions and ceremonies of all credentials of a user. Every
// change of a factor or of the password calls it, because a step-up proves the earlier factors.
func EndStepUps(t storage.Txn, userID string) error {
	factors, err := commonTable.GetOrZero(t, userID)
	if err != nil {
		return err
	}
	factors.UserID = userID
	factors.Epoch++
	return commonTable.Put(t, nil, factors)
}

var (
	errNoCode    = fault.At(fault.MissingParameter, "code", "code is required: the %d digits that the authenticator app shows, or a backup code", codeDigits)
	errCodeForm  = fault.At(fault.InvalidParameter, "code", "a code has %d digits, or is a backup code of %d letters and digits", codeDigits, backupDigits)
	errWrongCode = fault.At(fault.VerificationFailed, "code", "the code is wrong, was used before, or is no longer shown; wait for the next one")
	errNoTOTP    = fault.New(fault.NoFactor, "no authenticator app is set up for this account")

	errWrongBackupCode = fault.At(fault.VerificationFailed, "code", "the backup code is wrong, or was used before")
)

// ProveCode checks a TOTP code or a backup code of a user. A right code is used up in one
// transaction with effect, whose event is recorded.
//
// It returns VERIFICATION_FAILED for a wrong code, and TOO_MANY_ATTEMPTS without a check after too
// many of them. A text that does not have the form of a code is not counted.
func (s *Service) ProveCode(ctx context.Context, h Holder, code string, effect func(storage.Txn) (*audit.Event, error)) error {
	digits, backup := readBackupCode(code)
	switch {
	case code == "":
		return errNoCode
	case isCode(code):
		return s.prove(ctx, h, totpGuard, errWrongCode, s.findTOTP, func(t storage.Txn, has *TOTP) (bool, error) {
			return s.acceptCode(t, has, has.Seed, code)
		}, effect)
	case backup:
		return s.prove(ctx, h, backupGuard, errWrongBackupCode, s.findTOTP, func(t storage.Txn, _ *TOTP) (bool, error) {
			return s.useBackupCode(t, h.UserID, digits)
		}, effect)
	}
	return errCodeForm
}

// prove checks a code of the TOTP that find returns: check reports whether it is right, and uses it up.
// The attempt is counted durably before the check, so that the guard also limits parallel attempts. The
// use of the code, its effect and the reset of the count are one transaction.
func (s *Service) prove(ctx context.Context, h Holder, guard attempts.Guard, wrong error, find func(storage.Reader, Holder) (*TOTP, error),
	check func(storage.Txn, *TOTP) (bool, error), effect func(storage.Txn) (*audit.Event, error),
) error {
	err := s.store.Update(ctx, func(t storage.Txn) error {
		if _, err := find(t, h); err != nil {
			return err
		}
		return guard.Take(t, s.store.Now(), h.UserID)
	})
	if err != nil {
		return fault.OfStore(err)
	}
	var right bool
	err = s.audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		has, err := find(t, h)
		if err != nil {
			return nil, err
		}
		if right, err = check(t, has); err != nil {
			return nil, err
		}
		if !right {
			return &audit.Event{Actor: attempts.Unknown, Action: "code.refuse", User: h.UserID, Detail: guard.What, Address: h.Address}, nil
		}
		if err := guard.Reset(t, h.UserID); err != nil {
			return nil, err
		}
		return effect(t)
	})
	if err == nil && !right {
		err = wrong
	}
	return SealFault(err)
}

// proveAssertion uses up the passkey assertion of a credential in one transaction with effect. The
// attempt is counted first, if may allows it. The attempt has no audit event, because an assertion
// cannot be guessed.
func (s *Service) proveAssertion(ctx context.Context, h Holder, may func(storage.Reader) error, effect func(storage.Txn) (*audit.Event, error)) error {
	err := s.store.Update(ctx, func(t storage.Txn) error {
		if err := may(t); err != nil {
			return err
		}
		return attempts.Count(t, s.store.Now(), h.assertionAttempt())
	})
	if err != nil {
		return fault.OfStore(err)
	}
	return s.audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := s.useAssertion(t, h); err != nil {
			return nil, err
		}
		return effect(t)
	})
}

// Verify grants a credential a step-up until expires, in Unix seconds. The proof is a code, or the
// passkey assertion that [Service.FinishVerify] has recorded for the same credential. If may
// returns an error, an attempt by assertion is refused and not counted.
func (s *Service) Verify(ctx context.Context, h Holder, method, code string, expires int64, may func(storage.Reader) error, effect Effect) error {
	grant := func(t storage.Txn) (*audit.Event, error) {
		if err := GrantStepUp(t, h, method, expires); err != nil {
			return nil, err
		}
		return h.event("verify", method), effect(t)
	}
	switch method {
	case MethodCode:
		return s.ProveCode(ctx, h, code, grant)
	case MethodPasskey:
		return s.proveAssertion(ctx, h, may, grant)
	case "":
		return fault.At(fault.MissingParameter, "method", "method is required: %s or %s", MethodCode, MethodPasskey)
	}
	return fault.At(fault.InvalidParameter, "method", "the method is %s or %s", MethodCode, MethodPasskey)
}
