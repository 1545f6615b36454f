package identity

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Passkey is a passkey as it is shown.
type Passkey struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Created  int64  `json:"created"`             // Unix seconds
	LastUsed int64  `json:"last_used,omitempty"` // Unix seconds, zero: never
	BackedUp bool   `json:"backed_up"`           // whether it is kept on more than one device
}

// passkeyRecord is a passkey as it is stored: the credential record of WebAuthn section 4.
type passkeyRecord struct {
	Passkey
	UserID       string   `json:"user_id"`
	CredentialID []byte   `json:"credential_id"`
	PublicKey    []byte   `json:"public_key"` // COSE
	Counter      uint32   `json:"counter,omitempty"`
	Flags        byte     `json:"flags"`
	Transports   []string `json:"transports,omitempty"`
	AAGUID       []byte   `json:"aaguid,omitempty"`
	Format       string   `json:"format,omitempty"` // of the attestation
}

// credentialKey is the index key of the passkey with this credential id: its SHA-256.
func credentialKey(credentialID []byte) table.Key {
	sum := sha256.Sum256(credentialID)
	return table.Key{hex.EncodeToString(sum[:])}
}

// maxPasskeys bounds the passkeys of a user.
const maxPasskeys = 20

// passkeysOf returns the passkeys of a user, oldest first.
func passkeysOf(r storage.Reader, userID string) ([]*passkeyRecord, error) {
	passkeys, err := collect(passkeyTable.Scan(r, passkeyTable.Under(userID)))
	slices.SortStableFunc(passkeys, func(a, b *passkeyRecord) int { return cmp.Compare(a.Created, b.Created) })
	return passkeys, err
}

// passkeyName checks the name that a user gives a passkey.
func passkeyName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		return "Passkey", nil
	}
	if n := utf8.RuneCountInString(name); n > 64 || !visible(name) {
		return "", fault.At(fault.InvalidParameter, "name", "the name of a passkey has 1 to 64 printable characters")
	}
	return name, nil
}

// RemovePasskey removes a passkey of the account's user. A passkey of another user is NOT_FOUND,
// as one that never was. It needs a step-up and returns the new secret of the session.
func (d *Directory) RemovePasskey(ctx context.Context, a *Account, id string) (renewed Secret, err error) {
	if err := whole(a); err != nil {
		return "", err
	}
	err = d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := d.fresh(t, a); err != nil {
			return nil, err
		}
		record, err := passkeyTable.Get(t, a.UserID, id)
		if err != nil {
			return nil, err
		}
		if record == nil {
			return nil, fault.At(fault.NotFound, "id", "there is no passkey %q", id)
		}
		if err := passkeyTable.Put(t, record, nil); err != nil {
			return nil, err
		}
		renewed, err = d.factorsChanged(t, a)
		return a.event("passkey.remove", record.ID), err
	})
	return renewed, err
}

// A ceremony is the exchange with a passkey: a challenge is given out, and one
// answer to it is looked at. It is bound to what it is for and to who began it.

// RelyingParty is what passkeys are bound to. It comes from the configuration, never from a
// request.
//
// A ceremony is the exchange with a passkey: the gateway gives out a challenge and checks one
// answer to it. A ceremony is bound to its purpose and to the caller who began it.
type RelyingParty struct {
	ID      string   // the domain: a passkey answers to no other
	Origins []string // of the pages that may ask, such as https://ai.example.com
	Name    string   // for people
}

// CeremonyLife is how long a passkey has to answer.
const CeremonyLife = 2 * time.Minute

// What ceremonies are for.
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
	Name    string               `json:"name,omitempty"`  // of the passkey to be
	First   bool                 `json:"first,omitempty"` // whether it is to be the first factor
	Expires int64                `json:"expires"`         // Unix milliseconds
	Session webauthn.SessionData `json:"session"`
}

// loginOwner returns the owner of the ceremony of a log-in whose browser holds this secret.
func loginOwner(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// webAuthn returns the library as this relying party uses it: it requires user verification and
// discoverable passkeys.
func (rp RelyingParty) webAuthn() (*webauthn.WebAuthn, error) {
	if rp.ID == "" || len(rp.Origins) == 0 {
		return nil, fault.New(fault.NotFound, "passkeys are not set up here: the operator gives base_url, or passkey with rp_id and origin")
	}
	name := rp.Name
	if name == "" {
		name = rp.ID
	}
	// The library enforces the timeout only if configured, and by its own clock; see takeCeremony.
	timeout := webauthn.TimeoutConfig{Enforce: true, Timeout: CeremonyLife, TimeoutUVD: CeremonyLife}
	return webauthn.New(&webauthn.Config{
		RPID: rp.ID, RPDisplayName: name, RPOrigins: rp.Origins,
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification:   protocol.VerificationRequired,
		},
		Timeouts: webauthn.TimeoutsConfig{Login: timeout, Registration: timeout},
		// No extension is used; browsers and password managers may still report
		// some, and WebAuthn section 9.4 wants that to be borne.
		ExtensionsUnsolicitedOutputPolicy: protocol.UnsolicitedOutputPolicyIgnore,
	})
}

// keepCeremony stores a ceremony until it is answered. It replaces one of the same purpose and
// owner.
func (d *Directory) keepCeremony(ctx context.Context, purpose, owner string, ceremony ceremonyRecord) error {
	until := d.store.Now().Add(CeremonyLife)
	ceremony.Purpose, ceremony.Owner, ceremony.Expires = purpose, owner, until.UnixMilli()
	return fault.OfStore(d.store.Update(ctx, func(t storage.Txn) error {
		if ceremony.UserID != "" {
			var err error
			if ceremony.Epoch, err = factorEpoch(t, ceremony.UserID); err != nil {
				return err
			}
		}
		return ceremonyTable.Put(t, nil, &ceremony)
	}))
}

// takeCeremony deletes a ceremony and returns it for its one answer, before that is read. If
// there is none in force for this purpose, owner and user, it fails with PASSKEY_NOT_COMPLETED. A
// ceremony that was begun for a first factor is VERIFICATION_REQUIRED if the user has one by now.
func (d *Directory) takeCeremony(ctx context.Context, purpose, owner, userID string) (*ceremonyRecord, error) {
	var ceremony *ceremonyRecord
	var epoch int64
	var late *fault.Fault
	err := d.store.Update(ctx, func(t storage.Txn) (err error) {
		epoch, late = 0, nil
		if ceremony, err = ceremonyTable.Get(t, purpose, owner); err != nil || ceremony == nil {
			return err
		}
		if userID != "" {
			if epoch, err = factorEpoch(t, userID); err != nil {
				return err
			}
		}
		if ceremony.First {
			// It is taken all the same: a refusal here must not roll that back.
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
	case ceremony == nil || ceremony.UserID != userID || d.store.Now().UnixMilli() >= ceremony.Expires:
		return nil, errNoCeremony
	case late != nil:
		return nil, late
	case ceremony.Epoch != epoch:
		return nil, errNoCeremony
	}
	return ceremony, nil
}

var (
	errNoCeremony = fault.New(fault.PasskeyNotCompleted, "no passkey was asked for here within %s, or its answer was given already: begin again", attempts.InWords(CeremonyLife))

	errPasskeyForm = fault.New(fault.InvalidParameter, "this is not the answer of a passkey: send what PublicKeyCredential.toJSON() returns")

	// One refusal for all that may be wrong with an answer: unknown passkeys and
	// those of others read alike.
	errPasskeyRefused = fault.New(fault.VerificationFailed, "the passkey was not accepted: use one of this account, on this site, unlocked by PIN, fingerprint or face")
)

// passkeyUser is a user as the library needs it.
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

// findPasskeyUser returns a user with the user handle and the passkeys.
func findPasskeyUser(r storage.Reader, userID, name string) (passkeyUser, error) {
	factors, err := factorTable.GetOrZero(r, userID)
	if err != nil {
		return passkeyUser{}, err
	}
	passkeys, err := passkeysOf(r, userID)
	return passkeyUser{factors.Handle, name, passkeys}, err
}

// credential returns a passkey as the library needs it.
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

// BeginPasskey begins to register a passkey. It returns the options for
// navigator.credentials.create(), which name the user's passkeys, so that no device is registered
// twice. A first factor needs the password, a further one a step-up.
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
	if err := d.ensureHandle(ctx, a.UserID); err != nil {
		return nil, err
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
	return creation, d.keepCeremony(ctx, purposeRegister, a.Credential, ceremonyRecord{UserID: a.UserID, Name: name, First: first, Session: *session})
}

var errManyPasskeys = fault.New(fault.Conflict, "an account has at most %d passkeys; remove one first", maxPasskeys)

func (d *Directory) passkeyUser(ctx context.Context, a *Account) (user passkeyUser, err error) {
	return view(ctx, d, func(r storage.Reader) (passkeyUser, error) { return findPasskeyUser(r, a.UserID, a.UserName) })
}

// FinishPasskey registers the passkey that was made by the options of [Directory.BeginPasskey],
// with the same session or token. response is the JSON of the browser's PublicKeyCredential. A
// registration that began as the first factor fails if the user has set up another since; a
// further factor needs the step-up to be still in force. It also returns the new secret of the
// session.
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
		if err := passkeyTable.Put(t, nil, record); err != nil {
			return nil, err
		}
		renewed, err = d.factorsChanged(t, a)
		return a.event("passkey.add", record.ID), err
	})
	return record.Passkey, renewed, err
}

// newPasskey returns the record of a new passkey.
func newPasskey(userID, name string, now int64, made *webauthn.Credential) *passkeyRecord {
	record := &passkeyRecord{
		Passkey:      Passkey{ID: credential.NewID("psk"), Name: name, Created: now, BackedUp: made.Flags.BackupState},
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
