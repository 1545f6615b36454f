package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// A ceremony is the exchange with a passkey: a challenge is given out, and one
// answer to it is looked at. It is bound to what it is for and to who began it.

// RelyingParty is what passkeys are bound to. It comes from the configuration,
// never from a request.
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

// ceremonyRecord is a ceremony under way. The
// owner is the credential of the account; of a log-in, which has none yet, the
// hash of a secret that its browser holds.
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

// loginOwner is the owner of a log-in's ceremony whose browser holds this secret.
func loginOwner(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// webAuthn returns the library as this relying party uses it: the user is
// verified, by PIN or body, and the passkey can be found without a name.
func (rp RelyingParty) webAuthn() (*webauthn.WebAuthn, error) {
	if rp.ID == "" || len(rp.Origins) == 0 {
		return nil, fault.New(fault.NotFound, "passkeys are not set up here: the operator gives base_url, or passkey with rp_id and origin")
	}
	name := rp.Name
	if name == "" {
		name = rp.ID
	}
	// The library enforces nothing unless it is told to, and then by a clock of
	// its own: see takeCeremony.
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

// keepCeremony stores a ceremony until it is answered. One of the same purpose
// and owner that was under way has ended.
func (d *Directory) keepCeremony(ctx context.Context, purpose, owner string, ceremony ceremonyRecord) error {
	until := d.store.Now().Add(CeremonyLife)
	ceremony.Purpose, ceremony.Owner, ceremony.Expires = purpose, owner, until.UnixMilli()
	return d.store.Update(ctx, func(t storage.Txn) error {
		if ceremony.UserID != "" {
			var err error
			if ceremony.Epoch, err = factorEpoch(t, ceremony.UserID); err != nil {
				return err
			}
		}
		return ceremonyTable.Put(t, nil, &ceremony)
	})
}

// takeCeremony takes a ceremony out of the store for its one answer, before that
// is read, and whatever comes of it. There may be none for this purpose, owner
// and user, or none any more; that is PASSKEY_NOT_COMPLETED. One that was begun
// for a first factor is VERIFICATION_REQUIRED once there is one.
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
	errNoCeremony = fault.New(fault.PasskeyNotCompleted, "no passkey was asked for here within %s, or its answer was given already: begin again", inWords(CeremonyLife))

	errPasskeyForm = fault.New(fault.InvalidParameter, "this is not the answer of a passkey: send what PublicKeyCredential.toJSON() returns")

	// One refusal for all that may be wrong with an answer: unknown passkeys and
	// those of others read alike.
	errPasskeyRefused = fault.New(fault.VerificationFailed, "the passkey was not accepted: use one of this account, on this site, unlocked by PIN, fingerprint or face")
)
