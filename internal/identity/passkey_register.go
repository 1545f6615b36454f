package identity

import (
	"bytes"
	"context"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// passkeyUser is a user as the library asks for him.
type passkeyUser struct {
	handle   []byte
	name     string
	passkeys []*passkeyRecord
}

// WebAuthnID implements webauthn.User.
func (u passkeyUser) WebAuthnID() []byte { return u.handle }

// WebAuthnName implements webauthn.User.
func (u passkeyUser) WebAuthnName() string { return u.name }

// WebAuthnDisplayName implements webauthn.User.
func (u passkeyUser) WebAuthnDisplayName() string { return u.name }

// WebAuthnCredentials implements webauthn.User.
func (u passkeyUser) WebAuthnCredentials() []webauthn.Credential {
	credentials := make([]webauthn.Credential, len(u.passkeys))
	for i, p := range u.passkeys {
		credentials[i] = p.credential()
	}
	return credentials
}

// findPasskeyUser returns a user with his handle and passkeys.
func findPasskeyUser(r storage.Reader, userID, name string) (passkeyUser, error) {
	factors, err := factorTable.GetOrZero(r, userID)
	if err != nil {
		return passkeyUser{}, err
	}
	passkeys, err := passkeysOf(r, userID)
	return passkeyUser{factors.Handle, name, passkeys}, err
}

// credential returns a passkey as the library knows it.
func (p *passkeyRecord) credential() webauthn.Credential {
	c := webauthn.Credential{
		ID: p.CredentialID, PublicKey: p.PublicKey, AttestationFormat: p.Format,
		Flags:         webauthn.NewCredentialFlags(protocol.AuthenticatorFlags(p.Flags)),
		Authenticator: webauthn.Authenticator{AAGUID: p.AAGUID, SignCount: p.Counter},
	}
	for _, transport := range p.Transports {
		c.Transport = append(c.Transport, protocol.AuthenticatorTransport(transport))
	}
	return c
}

// BeginPasskey begins to register a passkey: it returns the options for
// navigator.credentials.create(), which name the passkeys that are there, so
// that no device is registered twice. A first factor demands the password, a
// further one a verification.
func (d *Directory) BeginPasskey(ctx context.Context, rp RelyingParty, a *Account, password, name string) (options any, err error) {
	library, err := rp.webAuthn()
	if err != nil {
		return nil, err
	}
	if name, err = passkeyName(name); err != nil {
		return nil, err
	}
	first, err := d.mayEnrol(ctx, a, password)
	if err != nil {
		return nil, err
	}
	return d.askForPasskey(ctx, library, a, name, first)
}

func (d *Directory) askForPasskey(ctx context.Context, library *webauthn.WebAuthn, a *Account, name string, first bool) (options any, err error) {
	if _, err := d.handle(ctx, a.UserID); err != nil {
		return nil, fault.OfStore(err)
	}
	user, err := d.passkeyUser(ctx, a)
	if err != nil {
		return nil, err
	}
	if len(user.passkeys) >= maxPasskeys {
		return nil, errManyPasskeys
	}
	there := webauthn.Credentials(user.WebAuthnCredentials()).CredentialDescriptors()
	creation, session, err := library.BeginRegistration(user, webauthn.WithExclusions(there))
	if err != nil {
		return nil, err
	}
	err = d.keepCeremony(ctx, purposeRegister, a.Credential, ceremonyRecord{UserID: a.UserID, Name: name, First: first, Session: *session})
	if err != nil {
		return nil, fault.OfStore(err)
	}
	return creation, nil
}

var errManyPasskeys = fault.New(fault.Conflict, "an account has at most %d passkeys; remove one first", maxPasskeys)

func (d *Directory) passkeyUser(ctx context.Context, a *Account) (user passkeyUser, err error) {
	err = d.store.View(ctx, func(r storage.Reader) (err error) {
		user, err = findPasskeyUser(r, a.UserID, a.UserName)
		return err
	})
	return user, fault.OfStore(err)
}

// FinishPasskey registers the passkey that was made by the options of
// [Directory.BeginPasskey], by the same session or token. response is the JSON of the
// browser's PublicKeyCredential. What was begun as the first factor does not end
// beside another that was set up since; a further one needs the verification
// still in force. The session gets a new secret.
func (d *Directory) FinishPasskey(ctx context.Context, rp RelyingParty, a *Account, response []byte) (passkey Passkey, renewed Secret, err error) {
	if err := whole(a); err != nil {
		return Passkey{}, "", err
	}
	library, err := rp.webAuthn()
	if err != nil {
		return Passkey{}, "", err
	}
	ceremony, err := d.takeCeremony(ctx, purposeRegister, a.Credential, a.UserID)
	if err != nil {
		return Passkey{}, "", err
	}
	answer, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return Passkey{}, "", errPasskeyForm
	}
	user, err := d.passkeyUser(ctx, a)
	if err != nil {
		return Passkey{}, "", err
	}
	made, err := library.CreateCredential(user, ceremony.Session, answer)
	if err != nil {
		return Passkey{}, "", d.refusePasskey(ctx, a.UserID, err)
	}
	record := newPasskey(a.UserID, ceremony.Name, d.store.Now().Unix(), made)
	err = d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := d.mayAdd(t, a, ceremony.First); err != nil {
			return nil, err
		}
		factors, err := factorTable.GetOrZero(t, a.UserID)
		if err != nil {
			return nil, err
		}
		passkeys, err := passkeysOf(t, a.UserID)
		if err != nil {
			return nil, err
		}
		taken, err := passkeyTable.Find(t, &passkeyCredentials, credentialKey(record.CredentialID)...)
		switch {
		case err != nil:
			return nil, err
		case !bytes.Equal(factors.Handle, user.handle) || factors.Epoch != ceremony.Epoch:
			return nil, errNoCeremony
		case len(passkeys) >= maxPasskeys:
			return nil, errManyPasskeys
		case taken != nil:
			return nil, errPasskeyRefused
		}
		if err := dropStamps(t, a.UserID); err != nil {
			return nil, err
		}
		if err := passkeyTable.Put(t, nil, record); err != nil {
			return nil, err
		}
		renewed, err = d.renewSession(t, a)
		return &audit.Event{Actor: a.UserID, Action: "passkey.add", User: a.UserID, Detail: record.ID, Address: a.Address}, err
	})
	if err != nil {
		return Passkey{}, "", fault.OfStore(err)
	}
	return record.Passkey, renewed, nil
}

// newPasskey is the record of a passkey that was just made.
func newPasskey(userID, name string, now int64, made *webauthn.Credential) *passkeyRecord {
	record := &passkeyRecord{
		Passkey:      Passkey{ID: newID("psk"), Name: name, Created: now, BackedUp: made.Flags.BackupState},
		UserID:       userID,
		CredentialID: made.ID, PublicKey: made.PublicKey, Format: made.AttestationFormat,
		Counter: made.Authenticator.SignCount, AAGUID: made.Authenticator.AAGUID,
		Flags: byte(made.Flags.ProtocolValue()),
	}
	for _, transport := range made.Transport {
		record.Transports = append(record.Transports, string(transport))
	}
	return record
}
