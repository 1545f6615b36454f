package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
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

// passkeyRecord is a passkey as it is stored: what WebAuthn section 4 calls a
// credential record.
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

// credentialKey is what leads to the passkey with this credential id: its SHA-256.
func credentialKey(credentialID []byte) table.Key {
	sum := sha256.Sum256(credentialID)
	return table.Key{hex.EncodeToString(sum[:])}
}

// maxPasskeys bounds the passkeys of a user.
const maxPasskeys = 20

// passkeysOf returns the passkeys of a user, oldest first.
func passkeysOf(r storage.Reader, userID string) ([]*passkeyRecord, error) {
	var passkeys []*passkeyRecord
	for passkey, err := range passkeyTable.Scan(r, passkeyTable.Under(userID)) {
		if err != nil {
			return nil, err
		}
		passkeys = append(passkeys, passkey)
	}
	slices.SortStableFunc(passkeys, func(a, b *passkeyRecord) int { return cmp.Compare(a.Created, b.Created) })
	return passkeys, nil
}

// passkeyName checks what its owner calls a passkey.
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

// RemovePasskey removes a passkey of the account's own user; one of another is
// NOT_FOUND as is one that is not there. It needs a verification, and gives the
// session a new secret.
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
		if err := dropStamps(t, a.UserID); err != nil {
			return nil, err
		}
		renewed, err = d.renewSession(t, a)
		return &audit.Event{Actor: a.UserID, Action: "passkey.remove", User: a.UserID, Detail: record.ID, Address: a.Address}, err
	})
	if err != nil {
		return "", fault.OfStore(err)
	}
	return renewed, nil
}
