package factor

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// CeremonyLife is how long a passkey may take to answer.
const CeremonyLife = 2 * time.Minute

// The purposes of ceremonies.
const (
	purposeRegister = "register"
	purposeLogin    = "login"
	purposeVerify   = "verify"
)

// ceremonyRecord is a ceremony that waits for its answer. Its owner is the credential of the
// account. A log-in has none yet; its owner is the hash of a secret that the browser holds.
type ceremonyRecord struct {
	Purpose string               `json:"purpose"`
	Owner   string               `json:"owner"`
	UserID  string               `json:"user_id,omitempty"`
	Epoch   int64                `json:"epoch,omitempty"` // of the user's factors
	Name    string               `json:"name,omitempty"`  // of the new passkey
	First   bool                 `json:"first,omitempty"` // whether it becomes the first factor
	Expires int64                `json:"expires"`         // Unix milliseconds
	Session webauthn.SessionData `json:"session"`
}

var ceremonyTable = table.Table[ceremonyRecord]{
	Name:    "ceremony",
	Key:     func(c *ceremonyRecord) table.Key { return table.Key{c.Purpose, c.Owner} },
	Expires: func(c *ceremonyRecord) time.Time { return time.UnixMilli(c.Expires) },
}

// keepCeremony stores a ceremony until it is answered. It replaces an earlier ceremony with the same
// purpose and owner.
func (s *Service) keepCeremony(ctx context.Context, purpose, owner string, ceremony ceremonyRecord) error {
	until := s.store.Now().Add(CeremonyLife)
	ceremony.Purpose, ceremony.Owner, ceremony.Expires = purpose, owner, until.UnixMilli()
	return fault.OfStore(s.store.Update(ctx, func(t storage.Txn) error {
		if ceremony.UserID != "" {
			var err error
			if ceremony.Epoch, err = epochOf(t, ceremony.UserID); err != nil {
				return err
			}
		}
		return ceremonyTable.Put(t, nil, &ceremony)
	}))
}

// takeCeremony deletes a ceremony and returns it, before its answer is read, so that there can be
// only one answer. If no ceremony is in force for this purpose, owner and user, it returns
// PASSKEY_NOT_COMPLETED. If the ceremony began for a first factor and the user has a factor now, it
// returns VERIFICATION_REQUIRED.
func (s *Service) takeCeremony(ctx context.Context, purpose, owner, userID string) (*ceremonyRecord, error) {
	var ceremony *ceremonyRecord
	var epoch int64
	var late *fault.Fault
	err := s.store.Update(ctx, func(t storage.Txn) (err error) {
		epoch, late = 0, nil
		if ceremony, err = ceremonyTable.Get(t, purpose, owner); err != nil || ceremony == nil {
			return err
		}
		if userID != "" {
			if epoch, err = epochOf(t, userID); err != nil {
				return err
			}
		}
		if ceremony.First {
			// The ceremony must be deleted in any case, and an error here would roll that back.
			if err := onlyFactor(t, ceremony.UserID); err != nil && !errors.As(err, &late) {
				return err
			}
		}
		return ceremonyTable.Delete(t, purpose, owner)
	})
	if err != nil {
		return nil, fault.OfStore(err)
	}
	switch {
	case ceremony == nil || ceremony.UserID != userID || s.store.Now().UnixMilli() >= ceremony.Expires:
		return nil, errNoCeremony
	case late != nil:
		return nil, late
	case ceremony.Epoch != epoch:
		return nil, errNoCeremony
	}
	return ceremony, nil
}

// BeginLogin begins a log-in by passkey. It returns the options for navigator.credentials.get(),
// which name no user and no passkey. The browser finishes the log-in by the secret ceremony within
// 2 minutes.
func (s *Service) BeginLogin(ctx context.Context, rp RelyingParty) (options any, ceremony credential.Secret, err error) {
	library, err := rp.webAuthn()
	if err != nil {
		return nil, "", err
	}
	assertion, session, err := library.BeginDiscoverableLogin()
	if err != nil {
		return nil, "", err
	}
	ceremony = credential.DrawPlain()
	return assertion, ceremony, s.keepCeremony(ctx, purposeLogin, hexHash([]byte(ceremony.Reveal())), ceremonyRecord{Session: *session})
}

// FinishLogin runs effect for the user whose passkey has answered. It returns VERIFICATION_FAILED for
// unknown passkeys and for wrong answers.
func (s *Service) FinishLogin(ctx context.Context, rp RelyingParty, ceremony string, response []byte,
	effect func(t storage.Txn, userID, passkeyID string) (*audit.Event, error),
) error {
	library, err := rp.webAuthn()
	if err != nil {
		return err
	}
	begun, err := s.takeCeremony(ctx, purposeLogin, hexHash([]byte(ceremony)), "")
	if err != nil {
		return err
	}
	answer, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return errPasskeyForm
	}
	var owner string // the user of the passkey; empty: there is no such passkey
	var broken error // of the store, which the library would report as a wrong answer
	_, _, err = library.ValidatePasskeyLogin(func(credentialID, _ []byte) (webauthn.User, error) {
		var user passkeyUser
		broken = s.store.View(ctx, func(r storage.Reader) error {
			passkey, err := PasskeyTable.Find(r, &passkeyCredentials, hexHash(credentialID))
			if err != nil || passkey == nil {
				return err
			}
			owner = passkey.UserID
			user, err = findPasskeyUser(r, owner, "")
			return err
		})
		if broken != nil || user.handle == nil {
			return nil, errPasskeyRefused
		}
		return user, nil
	}, begun.Session, answer)
	switch {
	case broken != nil:
		return fault.OfStore(broken)
	case err != nil:
		return s.refusePasskey(ctx, owner, err)
	}
	return s.usePasskey(ctx, owner, answer, func(t storage.Txn, p *PasskeyRecord) (*audit.Event, error) {
		return effect(t, owner, p.ID)
	})
}

// BeginVerify begins a verification by one of the user's passkeys, and returns the options for
// navigator.credentials.get(). If the user has no passkey, it returns NO_FACTOR.
func (s *Service) BeginVerify(ctx context.Context, rp RelyingParty, h Holder) (options any, err error) {
	library, err := rp.webAuthn()
	if err != nil {
		return nil, err
	}
	user, err := s.passkeyUser(ctx, h)
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
	return assertion, s.keepCeremony(ctx, purposeVerify, h.Credential, ceremonyRecord{UserID: h.UserID, Session: *session})
}

// FinishVerify checks the answer of a passkey to the options of [Service.BeginVerify], with the same
// credential. It records a passkey assertion for that credential, by which [Service.Verify] succeeds
// once within 60 s.
func (s *Service) FinishVerify(ctx context.Context, rp RelyingParty, h Holder, response []byte, effect Effect) error {
	library, err := rp.webAuthn()
	if err != nil {
		return err
	}
	begun, err := s.takeCeremony(ctx, purposeVerify, h.Credential, h.UserID)
	if err != nil {
		return err
	}
	answer, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return errPasskeyForm
	}
	user, err := s.passkeyUser(ctx, h)
	if err != nil {
		return err
	}
	if _, err := library.ValidateLogin(user, begun.Session, answer); err != nil {
		return s.refusePasskey(ctx, h.UserID, err)
	}
	return s.usePasskey(ctx, h.UserID, answer, func(t storage.Txn, p *PasskeyRecord) (*audit.Event, error) {
		if err := s.setAssertion(t, h, begun.Epoch, p.ID); err != nil {
			return nil, err
		}
		return nil, effect(t)
	})
}

// usePasskey records that a passkey of a user has answered, and runs effect in the same
// transaction. It reads the record again, because the passkey may have been removed, or another
// answer may have raised its counter.
//
// A counter that does not rise reveals a copy. The answer is then refused if the passkey never
// leaves its device. A passkey that is on several devices has several counters, or none
// (WebAuthn section 6.1.1).
func (s *Service) usePasskey(ctx context.Context, userID string, answer *protocol.ParsedCredentialAssertionData,
	effect func(storage.Txn, *PasskeyRecord) (*audit.Event, error),
) error {
	var refused bool
	err := s.audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		refused = false
		passkeys, err := passkeysOf(t, userID)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(passkeys, func(p *PasskeyRecord) bool { return bytes.Equal(p.CredentialID, answer.RawID) })
		if i < 0 {
			return nil, errPasskeyRefused
		}
		before, used := passkeys[i], *passkeys[i]
		data := answer.Response.AuthenticatorData
		if copied(used.Counter, data.Counter) {
			if !data.Flags.HasBackupEligible() {
				refused = true
				return &audit.Event{Actor: attempts.Unknown, Action: "passkey.copied", User: userID, Detail: used.ID}, nil
			}
		} else {
			used.Counter = data.Counter
		}
		flags := webauthn.NewCredentialFlags(protocol.AuthenticatorFlags(used.Flags)).Update(data.Flags)
		used.Flags, used.BackedUp, used.LastUsed = byte(flags.ProtocolValue()), flags.BackupState, s.store.Now().Unix()
		if err := PasskeyTable.Put(t, before, &used); err != nil {
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

// refusePasskey writes to the audit log why an answer was refused. The error for the caller does
// not contain the reason.
func (s *Service) refusePasskey(ctx context.Context, userID string, why error) error {
	detail := "not verified"
	if reason, ok := errors.AsType[*protocol.Error](why); ok {
		detail = reason.Details
	}
	s.audit.OnAudit(audit.Event{Actor: attempts.Unknown, Action: "passkey.refuse", User: userID, Detail: detail, RequestID: requestid.Of(ctx)})
	return errPasskeyRefused
}
