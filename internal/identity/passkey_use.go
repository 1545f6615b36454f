package identity

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/storage"
)

// BeginPasskeyLogin begins a log-in by passkey. It returns the options for
// navigator.credentials.get(), which name no user and no passkey, and the secret by which the
// same browser finishes the log-in within 2 minutes.
func (d *Directory) BeginPasskeyLogin(ctx context.Context, rp RelyingParty) (options any, ceremony Secret, err error) {
	library, err := rp.webAuthn()
	if err != nil {
		return nil, "", err
	}
	assertion, session, err := library.BeginDiscoverableLogin()
	if err != nil {
		return nil, "", err
	}
	ceremony = credential.DrawPlain()
	return assertion, ceremony, d.keepCeremony(ctx, purposeLogin, loginOwner(ceremony.Reveal()), ceremonyRecord{Session: *session})
}

// FinishPasskeyLogin opens a session for the owner of the passkey that has answered. No further
// factor is due, because a passkey proves possession and a PIN or biometric. Unknown passkeys and
// wrong answers are VERIFICATION_FAILED without distinction; a right answer of a disabled user is
// USER_DISABLED.
func (d *Directory) FinishPasskeyLogin(ctx context.Context, rp RelyingParty, ceremony string, response []byte, from Device, terms Terms) (Entry, error) {
	library, err := rp.webAuthn()
	if err != nil {
		return Entry{}, err
	}
	begun, err := d.takeCeremony(ctx, purposeLogin, loginOwner(ceremony), "")
	if err != nil {
		return Entry{}, err
	}
	answer, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return Entry{}, errPasskeyForm
	}
	var owner string // its user; empty: there is no such passkey
	var broken error // of the store, which the library would report as a wrong answer
	_, _, err = library.ValidatePasskeyLogin(func(credentialID, _ []byte) (webauthn.User, error) {
		var user passkeyUser
		broken = d.store.View(ctx, func(r storage.Reader) error {
			passkey, err := passkeyTable.Find(r, &passkeyCredentials, credentialKey(credentialID)...)
			if err != nil || passkey == nil {
				return err
			}
			owner = passkey.UserID
			user, err = findPasskeyUser(r, owner, "")
			return err
		})
		if broken != nil || user.handle == nil {
			return nil, errGone
		}
		return user, nil
	}, begun.Session, answer)
	switch {
	case broken != nil:
		return Entry{}, fault.OfStore(broken)
	case err != nil:
		return Entry{}, d.refusePasskey(ctx, owner, err)
	}
	var entry Entry
	err = d.usePasskey(ctx, owner, answer, func(t storage.Txn, p *passkeyRecord) (*audit.Event, error) {
		var err error
		entry, err = d.openSession(t, owner, from, terms, false)
		return &audit.Event{Actor: owner, Action: "login", User: owner, Detail: "passkey " + p.ID, Address: from.address()}, err
	})
	return entry, err
}

// BeginPasskeyVerify begins a verification by one of the user's passkeys, and returns the options
// for navigator.credentials.get(). A user without a passkey is NO_FACTOR.
func (d *Directory) BeginPasskeyVerify(ctx context.Context, rp RelyingParty, a *Account) (options any, err error) {
	if err := whole(a); err != nil {
		return nil, err
	}
	library, err := rp.webAuthn()
	if err != nil {
		return nil, err
	}
	user, err := d.passkeyUser(ctx, a)
	if err != nil {
		return nil, err
	}
	if len(user.passkeys) == 0 {
		return nil, fault.New(fault.NoFactor, "no passkey is registered for this account")
	}
	assertion, session, err := library.BeginLogin(user)
	if err != nil {
		return nil, err
	}
	return assertion, d.keepCeremony(ctx, purposeVerify, a.Credential, ceremonyRecord{UserID: a.UserID, Session: *session})
}

// FinishPasskeyVerify checks the answer of a passkey to the options of
// [Directory.BeginPasskeyVerify], with the same session or token. It records a passkey assertion
// for that credential, by which [Directory.Verify] succeeds once within 60 s. It returns the new
// secret of the session, so that a thief of the old one cannot use the assertion first.
func (d *Directory) FinishPasskeyVerify(ctx context.Context, rp RelyingParty, a *Account, response []byte) (renewed Secret, err error) {
	if err := whole(a); err != nil {
		return "", err
	}
	library, err := rp.webAuthn()
	if err != nil {
		return "", err
	}
	begun, err := d.takeCeremony(ctx, purposeVerify, a.Credential, a.UserID)
	if err != nil {
		return "", err
	}
	answer, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return "", errPasskeyForm
	}
	user, err := d.passkeyUser(ctx, a)
	if err != nil {
		return "", err
	}
	if _, err := library.ValidateLogin(user, begun.Session, answer); err != nil {
		return "", d.refusePasskey(ctx, a.UserID, err)
	}
	err = d.usePasskey(ctx, a.UserID, answer, func(t storage.Txn, p *passkeyRecord) (_ *audit.Event, err error) {
		if err = d.setAssertion(t, a, begun.Epoch, p.ID); err != nil {
			return nil, err
		}
		renewed, err = d.renewSession(t, a)
		return nil, err
	})
	return renewed, err
}

// usePasskey records that a passkey of a user has answered, and runs effect in the same
// transaction. It reads the record again, because it may be gone, or another answer may have
// raised its counter.
//
// A counter that does not rise reveals a copy. The answer is refused if the passkey never leaves
// its device; a passkey that is kept on several devices has several counters, or none (WebAuthn
// section 6.1.1).
func (d *Directory) usePasskey(ctx context.Context, userID string, answer *protocol.ParsedCredentialAssertionData,
	effect func(storage.Txn, *passkeyRecord) (*audit.Event, error),
) error {
	var refused bool
	err := d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		refused = false
		passkeys, err := passkeysOf(t, userID)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(passkeys, func(p *passkeyRecord) bool { return bytes.Equal(p.CredentialID, answer.RawID) })
		if i < 0 {
			return nil, errPasskeyRefused
		}
		before, used := passkeys[i], *passkeys[i]
		data := answer.Response.AuthenticatorData
		if copied(used.Counter, data.Counter) {
			if !data.Flags.HasBackupEligible() {
				refused = true
				return &audit.Event{Actor: Unknown, Action: "passkey.copied", User: userID, Detail: used.ID}, nil
			}
		} else {
			used.Counter = data.Counter
		}
		flags := webauthn.NewCredentialFlags(protocol.AuthenticatorFlags(used.Flags)).Update(data.Flags)
		used.Flags, used.BackedUp, used.LastUsed = byte(flags.ProtocolValue()), flags.BackupState, d.store.Now().Unix()
		if err := passkeyTable.Put(t, before, &used); err != nil {
			return nil, err
		}
		return effect(t, &used)
	})
	if err == nil && refused {
		err = errPasskeyRefused
	}
	return err
}

// copied reports whether a counter did not rise. Zero twice means that the device does not count.
func copied(last, now uint32) bool { return now <= last && (now != 0 || last != 0) }

// refusePasskey writes to the audit log why an answer was refused. The caller learns only that it
// was.
func (d *Directory) refusePasskey(ctx context.Context, userID string, why error) error {
	detail := "not verified"
	var reason *protocol.Error
	if errors.As(why, &reason) {
		detail = reason.Details
	}
	d.Audit.OnAudit(audit.Event{Actor: Unknown, Action: "passkey.refuse", User: userID, Detail: detail, RequestID: requestid.Of(ctx)})
	return errPasskeyRefused
}
