package identity

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Types of package factor in the methods of the Directory.
type (
	RelyingParty = factor.RelyingParty
	Factors      = factor.Factors
)

// CeremonyLife is how long a passkey may take to answer.
const CeremonyLife = factor.CeremonyLife

// holder returns the account for package factor.
func (a *Account) holder() factor.Holder {
	return factor.Holder{UserID: a.UserID, UserName: a.UserName, Credential: a.Credential, Address: a.Address}
}

// refuseHalfOpen returns an error for a half-open session.
func refuseHalfOpen(a *Account) error {
	if a.HalfOpen {
		return fault.New(fault.SecondFactorRequired, "the second factor of this log-in is still due")
	}
	return nil
}

// renewing runs an operation of an account and gives the account's session a new secret in the same
// transaction. It returns that secret. See renewSession.
func (d *Directory) renewing(a *Account, operation func(factor.Holder, factor.Effect) error) (renewed Secret, err error) {
	if err := refuseHalfOpen(a); err != nil {
		return "", err
	}
	err = operation(a.holder(), func(t storage.Txn) (err error) {
		renewed, err = d.renewSession(t, a)
		return err
	})
	return renewed, err
}

// SetTOTPSkew sets how many steps of 30 s a TOTP code may be early or late from now on: zero or
// one. Zero requires exact clocks.
func (d *Directory) SetTOTPSkew(steps int) { d.factors.SetTOTPSkew(steps) }

// Factors returns the factors of a user.
func (d *Directory) Factors(ctx context.Context, userID string) (Factors, error) {
	return view(ctx, d, func(r storage.Reader) (Factors, error) { return factor.Of(r, userID) })
}

// ResetFactors removes TOTP, backup codes and passkeys of a user who has lost them, with the
// failures that were counted and all step-ups. The user logs in by the password alone and enrols
// again. Half-open sessions end, because the factor that is due in them is gone.
func (d *Directory) ResetFactors(ctx context.Context, actor, idOrName string) error {
	return d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		user, err := findUser(t, idOrName)
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
		return &audit.Event{Actor: actor, Action: "user.reset_2fa", User: user.ID}, factor.Reset(t, user.ID)
	})
}

// Fresh returns VERIFICATION_REQUIRED or VERIFICATION_EXPIRED unless the credential has a step-up
// in force or the user has no factor. It returns NOT_LOGGED_IN if the credential has ended or got
// another secret. Thus a later proof does not help a thief of the earlier secret.
func (d *Directory) Fresh(ctx context.Context, a *Account) error {
	return fault.OfStore(d.store.View(ctx, func(r storage.Reader) error { return d.fresh(r, a) }))
}

func (d *Directory) fresh(r storage.Reader, a *Account) error {
	if _, _, err := d.own(r, a); err != nil {
		return err
	}
	return d.factors.Fresh(r, a.holder())
}

// mayEnrol returns an error unless a user may enrol a new factor. The first factor needs the
// password, so that a thief of the cookie cannot set up a factor. Each further one needs a step-up.
// first is true if the user has no factor.
func (d *Directory) mayEnrol(ctx context.Context, a *Account, password string) (first bool, err error) {
	if err := refuseHalfOpen(a); err != nil {
		return false, err
	}
	due, err := view(ctx, d, func(r storage.Reader) ([]string, error) {
		due, err := factor.Due(r, a.UserID)
		if err != nil || due == nil {
			return due, err
		}
		return due, d.factors.Fresh(r, a.holder())
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

// SetUpTOTP begins to enrol TOTP with a new seed. [Directory.EnableTOTP] must get a code of it
// within 10 minutes, with the same session or token. A first factor needs the password, a second
// one a step-up. An enrolment that began as the first factor fails if the user has set up another
// since. It replaces an unfinished enrolment. If TOTP is on, it returns CONFLICT.
func (d *Directory) SetUpTOTP(ctx context.Context, a *Account, password, issuer string) (factor.Enrolment, error) {
	first, err := d.mayEnrol(ctx, a, password)
	if err != nil {
		return factor.Enrolment{}, err
	}
	return d.factors.SetUpTOTP(ctx, a.holder(), issuer, first)
}

// EnableTOTP turns on the TOTP that is being enrolled, by a code of it, and uses up the code. It
// returns the backup codes, which are shown only here, and the new secret of the session.
func (d *Directory) EnableTOTP(ctx context.Context, a *Account, code string) (codes []Secret, renewed Secret, err error) {
	renewed, err = d.renewing(a, func(h factor.Holder, renew factor.Effect) (err error) {
		codes, err = d.factors.EnableTOTP(ctx, h, code, renew)
		return err
	})
	return codes, renewed, err
}

// DisableTOTP turns TOTP off, by a TOTP code or a backup code, and deletes the backup codes. It
// returns the new secret of the session.
func (d *Directory) DisableTOTP(ctx context.Context, a *Account, code string) (Secret, error) {
	return d.renewing(a, func(h factor.Holder, renew factor.Effect) error { return d.factors.DisableTOTP(ctx, h, code, renew) })
}

// RenewBackupCodes replaces the backup codes of a user with ten new ones. It needs a TOTP code or
// an old backup code. It also returns the new secret of the session.
func (d *Directory) RenewBackupCodes(ctx context.Context, a *Account, code string) (codes []Secret, renewed Secret, err error) {
	renewed, err = d.renewing(a, func(h factor.Holder, renew factor.Effect) (err error) {
		codes, err = d.factors.RenewBackupCodes(ctx, h, code, renew)
		return err
	})
	return codes, renewed, err
}

// Verify grants the credential of an account a step-up, by a code, or by the passkey assertion that
// [Directory.FinishPasskeyVerify] has recorded for the same credential. It returns when the step-up
// expires, in Unix seconds; it ends with the credential. It also returns the new secret of the
// session.
func (d *Directory) Verify(ctx context.Context, a *Account, method, code string, lifetime time.Duration) (expires int64, renewed Secret, err error) {
	expires = d.store.Now().Add(lifetime).Unix()
	renewed, err = d.renewing(a, func(h factor.Holder, renew factor.Effect) error {
		own := func(r storage.Reader) error { _, _, err := d.own(r, a); return err }
		return d.factors.Verify(ctx, h, method, code, expires, own, renew)
	})
	return expires, renewed, err
}

// BeginPasskey begins to register a passkey. It returns the options for
// navigator.credentials.create(), which name the user's passkeys, so that no device is registered
// twice. A first factor needs the password, a further one a step-up.
func (d *Directory) BeginPasskey(ctx context.Context, rp RelyingParty, a *Account, password, name string) (options any, err error) {
	if name = strings.TrimSpace(name); name == "" {
		name = "Passkey"
	}
	if utf8.RuneCountInString(name) > 64 || !visible(name) {
		return nil, fault.At(fault.InvalidParameter, "name", "the name of a passkey has 1 to 64 printable characters")
	}
	first, err := d.mayEnrol(ctx, a, password)
	if err != nil {
		return nil, err
	}
	return d.factors.BeginPasskey(ctx, rp, a.holder(), name, first)
}

// FinishPasskey registers the passkey that was created with the options of
// [Directory.BeginPasskey]. The session or token must be the same. The response is the JSON of
// the browser's PublicKeyCredential. A registration that began as the first factor fails if the
// user has set up another since. For a further factor, the step-up must still be in force. It
// also returns the new secret of the session.
func (d *Directory) FinishPasskey(ctx context.Context, rp RelyingParty, a *Account, response []byte) (passkey factor.Passkey, renewed Secret, err error) {
	renewed, err = d.renewing(a, func(h factor.Holder, renew factor.Effect) (err error) {
		passkey, err = d.factors.FinishPasskey(ctx, rp, h, response, renew)
		return err
	})
	return passkey, renewed, err
}

// RemovePasskey removes a passkey of the account's user. If the passkey does not exist or belongs
// to another user, it returns NOT_FOUND. It needs a step-up and returns the new secret of the session.
func (d *Directory) RemovePasskey(ctx context.Context, a *Account, id string) (Secret, error) {
	return d.renewing(a, func(h factor.Holder, renew factor.Effect) error { return d.factors.RemovePasskey(ctx, h, id, renew) })
}

// BeginPasskeyLogin begins a log-in by passkey. It returns the options for
// navigator.credentials.get(), which name no user and no passkey. The browser finishes the
// log-in by the secret ceremony within 2 minutes.
func (d *Directory) BeginPasskeyLogin(ctx context.Context, rp RelyingParty) (options any, ceremony Secret, err error) {
	return d.factors.BeginLogin(ctx, rp)
}

// FinishPasskeyLogin opens a session for the owner of the passkey that has answered. No further
// factor is due, because a passkey proves possession and a PIN or biometric. It returns
// VERIFICATION_FAILED for unknown passkeys and for wrong answers, and USER_DISABLED for a right
// answer of a disabled user.
func (d *Directory) FinishPasskeyLogin(ctx context.Context, rp RelyingParty, ceremony string, response []byte, from Device, terms Terms) (entry Entry, err error) {
	err = d.factors.FinishLogin(ctx, rp, ceremony, response, func(t storage.Txn, userID, passkeyID string) (_ *audit.Event, err error) {
		entry, err = d.openSession(t, userID, from, terms, false)
		return &audit.Event{Actor: userID, Action: "login", User: userID, Detail: "passkey " + passkeyID, Address: from.address()}, err
	})
	return entry, err
}

// BeginPasskeyVerify begins a verification by one of the user's passkeys, and returns the options
// for navigator.credentials.get(). If the user has no passkey, it returns NO_FACTOR.
func (d *Directory) BeginPasskeyVerify(ctx context.Context, rp RelyingParty, a *Account) (options any, err error) {
	if err := refuseHalfOpen(a); err != nil {
		return nil, err
	}
	return d.factors.BeginVerify(ctx, rp, a.holder())
}

// FinishPasskeyVerify checks the answer of a passkey to the options of
// [Directory.BeginPasskeyVerify], with the same session or token. It records a passkey assertion
// for that credential, by which [Directory.Verify] succeeds once within 60 s. It returns the new
// secret of the session, so that a thief of the old one cannot use the assertion first.
func (d *Directory) FinishPasskeyVerify(ctx context.Context, rp RelyingParty, a *Account, response []byte) (Secret, error) {
	return d.renewing(a, func(h factor.Holder, renew factor.Effect) error {
		return d.factors.FinishVerify(ctx, rp, h, response, renew)
	})
}
