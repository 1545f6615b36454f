package factor

import (
	"cmp"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/storage"
)

// RelyingParty is the site to which passkeys are bound. It is in the configuration, and never taken
// from a request.
//
// A ceremony is the exchange with a passkey: the gateway sends a challenge and checks one
// answer to it. A ceremony is bound to its purpose and to the caller that began it.
type RelyingParty struct {
	ID      string   // the domain: a passkey does not answer to any other
	Origins []string // the origins of pages that may use passkeys, such as https://ai.example.com
	Name    string   // shown to users
}

// webAuthn returns the library with the settings of this relying party: it requires user
// verification and discoverable passkeys.
func (rp RelyingParty) webAuthn() (*webauthn.WebAuthn, error) {
	if rp.ID == "" || len(rp.Origins) == 0 {
		return nil, fault.New(fault.NotFound, "passkeys are not configured: the operator sets base_url, or passkey with rp_id and origin")
	}
	name := cmp.Or(rp.Name, rp.ID)
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
		// No extension is used. Browsers and password managers may still report
		// some, and WebAuthn section 9.4 requires sites to ignore that.
		ExtensionsUnsolicitedOutputPolicy: protocol.UnsolicitedOutputPolicyIgnore,
	})
}

var (
	errNoCeremony = fault.New(fault.PasskeyNotCompleted, "no passkey ceremony was started in this session within %s, or it has already ended; start again", attempts.Words(CeremonyLife))

	errPasskeyForm = fault.New(fault.InvalidParameter, "this is not the answer of a passkey: send the result of PublicKeyCredential.toJSON()")

	// The same error for every wrong answer, so that it does not reveal whether a passkey
	// is unknown or belongs to another user.
	errPasskeyRefused = fault.New(fault.VerificationFailed, "the passkey was not accepted: use one of this account, on this site, unlocked by PIN, fingerprint or face")
)

// passkeyUser is a user in the form that the library needs.
type passkeyUser struct {
	handle   []byte
	name     string
	passkeys []*PasskeyRecord
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
	factors, err := commonTable.GetOrZero(r, userID)
	if err != nil {
		return passkeyUser{}, err
	}
	passkeys, err := passkeysOf(r, userID)
	return passkeyUser{factors.Handle, name, passkeys}, err
}

// credential returns a passkey in the form that the library needs.
func (p *PasskeyRecord) credential() webauthn.Credential {
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
