package factor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Passkey is a passkey in answers.
type Passkey struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Created  int64  `json:"created"`             // Unix seconds
	LastUsed int64  `json:"last_used,omitempty"` // Unix seconds, zero: never
	BackedUp bool   `json:"backed_up"`           // whether it is kept on more than one device
}

// PasskeyRecord is a stored passkey, the credential record of WebAuthn section 4.
type PasskeyRecord struct {
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

var (
	// PasskeyTable has the passkeys of all users.
	PasskeyTable = table.Table[PasskeyRecord]{
		Name:    "passkey",
		Key:     func(p *PasskeyRecord) table.Key { return table.Key{p.UserID, p.ID} },
		Indexes: []*table.Index[PasskeyRecord]{&passkeyCredentials},
	}

	// passkeyCredentials makes credential ids unique over all users.
	passkeyCredentials = table.Index[PasskeyRecord]{Name: "passkeyid", Unique: true, Fixed: true, Fields: func(p *PasskeyRecord) table.Key { return table.Key{hexHash(p.CredentialID)} }}
)

// hexHash returns the SHA-256 of a text in hexadecimal digits. It is the key of a passkey, by its
// credential id, and of the ceremony of a log-in, by the secret of the browser.
func hexHash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// maxPasskeys bounds the passkeys of a user.
const maxPasskeys = 20

// passkeysOf returns the passkeys of a user, oldest first.
func passkeysOf(r storage.Reader, userID string) ([]*PasskeyRecord, error) {
	var passkeys []*PasskeyRecord
	for passkey, err := range PasskeyTable.Scan(r, PasskeyTable.Under(userID)) {
		if err != nil {
			return nil, err
		}
		passkeys = append(passkeys, passkey)
	}
	slices.SortStableFunc(passkeys, func(a, b *PasskeyRecord) int { return cmp.Compare(a.Created, b.Created) })
	return passkeys, nil
}

// BeginPasskey begins to register a passkey. It returns the options for
// navigator.credentials.create(), which name the user's passkeys, so that no device is registered
// twice. The argument first means that the user has no factor yet.
func (s *Service) BeginPasskey(ctx context.Context, rp RelyingParty, h Holder, name string, first bool) (options any, err error) {
	library, err := rp.webAuthn()
	if err != nil {
		return nil, err
	}
	if err := s.ensureHandle(ctx, h.UserID); err != nil {
		return nil, err
	}
	user, err := s.passkeyUser(ctx, h)
	if err != nil {
		return nil, err
	}
	if len(user.passkeys) >= maxPasskeys {
		return nil, errManyPasskeys
	}
	registered := webauthn.Credentials(user.WebAuthnCredentials()).CredentialDescriptors()
	creation, session, err := library.BeginRegistration(user, webauthn.WithExclusions(registered))
	if err != nil {
		return nil, err
	}
	return creation, s.keepCeremony(ctx, purposeRegister, h.Credential, ceremonyRecord{UserID: h.UserID, Name: name, First: first, Session: *session})
}

var errManyPasskeys = fault.New(fault.Conflict, "an account has at most %d passkeys; remove one first", maxPasskeys)

func (s *Service) passkeyUser(ctx context.Context, h Holder) (user passkeyUser, err error) {
	err = s.store.View(ctx, func(r storage.Reader) (err error) {
		user, err = findPasskeyUser(r, h.UserID, h.UserName)
		return err
	})
	return user, fault.OfStore(err)
}

// FinishPasskey registers the passkey that was created with the options of [Service.BeginPasskey].
// The credential must be the same. The response is the JSON of the browser's PublicKeyCredential.
// A registration that began as the first factor fails if the user has set up another since. For a
// further factor, the step-up must still be in force.
func (s *Service) FinishPasskey(ctx context.Context, rp RelyingParty, h Holder, response []byte, effect Effect) (Passkey, error) {
	library, err := rp.webAuthn()
	if err != nil {
		return Passkey{}, err
	}
	ceremony, err := s.takeCeremony(ctx, purposeRegister, h.Credential, h.UserID)
	if err != nil {
		return Passkey{}, err
	}
	answer, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return Passkey{}, errPasskeyForm
	}
	user, err := s.passkeyUser(ctx, h)
	if err != nil {
		return Passkey{}, err
	}
	created, err := library.CreateCredential(user, ceremony.Session, answer)
	if err != nil {
		return Passkey{}, s.refusePasskey(ctx, h.UserID, err)
	}
	record := newPasskey(h.UserID, ceremony.Name, s.store.Now().Unix(), created)
	return record.Passkey, s.audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := s.mayAdd(t, h, ceremony.First); err != nil {
			return nil, err
		}
		now, err := findPasskeyUser(t, h.UserID, h.UserName)
		if err != nil {
			return nil, err
		}
		epoch, err := epochOf(t, h.UserID)
		if err != nil {
			return nil, err
		}
		taken, err := PasskeyTable.Find(t, &passkeyCredentials, hexHash(record.CredentialID))
		switch {
		case err != nil:
			return nil, err
		case !bytes.Equal(now.handle, user.handle) || epoch != ceremony.Epoch:
			return nil, errNoCeremony
		case len(now.passkeys) >= maxPasskeys:
			return nil, errManyPasskeys
		case taken != nil:
			return nil, errPasskeyRefused
		}
		if err := PasskeyTable.Put(t, nil, record); err != nil {
			return nil, err
		}
		return h.changed(t, "passkey.add", record.ID, effect)
	})
}

// RemovePasskey removes a passkey of a user. If the passkey does not exist or belongs to another user,
// it returns NOT_FOUND. It needs a step-up.
func (s *Service) RemovePasskey(ctx context.Context, h Holder, id string, effect Effect) error {
	return s.audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := s.Fresh(t, h); err != nil {
			return nil, err
		}
		record, err := PasskeyTable.Get(t, h.UserID, id)
		if err != nil {
			return nil, err
		}
		if record == nil {
			return nil, fault.At(fault.NotFound, "id", "there is no passkey %q", id)
		}
		if err := PasskeyTable.Put(t, record, nil); err != nil {
			return nil, err
		}
		return h.changed(t, "passkey.remove", record.ID, effect)
	})
}

// newPasskey returns the record of a new passkey.
func newPasskey(userID, name string, now int64, created *webauthn.Credential) *PasskeyRecord {
	record := &PasskeyRecord{
		Passkey:      Passkey{ID: credential.NewID("psk"), Name: name, Created: now, BackedUp: created.Flags.BackupState},
		UserID:       userID,
		CredentialID: created.ID, PublicKey: created.PublicKey, Format: created.AttestationFormat,
		Counter: created.Authenticator.SignCount, AAGUID: created.Authenticator.AAGUID,
		Flags: byte(created.Flags.ProtocolValue()),
	}
	for _, transport := range created.Transport {
		record.Transports = append(record.Transports, string(transport))
	}
	return record
}
