package identity

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"

	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
)

// here is the relying party of these tests, and page its only page.
var (
	here = RelyingParty{ID: "gate.example", Origins: []string{"https://gate.example:8443"}, Name: "Gate"}
	page = virtualwebauthn.RelyingParty{ID: "gate.example", Origin: "https://gate.example:8443", Name: "Gate"}
)

// device is an authenticator with one passkey, with the page that uses it.
type device struct {
	page virtualwebauthn.RelyingParty
	auth virtualwebauthn.Authenticator
	cred virtualwebauthn.Credential
}

func newDevice() *device {
	v := &device{page: page, auth: virtualwebauthn.NewAuthenticator()}
	for {
		v.cred = virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)
		// The software authenticator drops leading zeros of the two coordinates, which
		// violates RFC 9053 section 7.1.1. Such keys, one in 128, are drawn again.
		if len(v.cred.Key.AttestationData()) == keySize {
			return v
		}
	}
}

// keySize is the size of a public key on P-256 as COSE, in bytes.
const keySize = 77

// create returns the answer to the options of a registration.
func (v *device) create(t testing.TB, options any) []byte {
	t.Helper()
	parsed, err := virtualwebauthn.ParseAttestationOptions(asText(t, options))
	if err != nil {
		t.Fatal(err)
	}
	v.auth.Options.UserHandle = []byte(parsed.UserID)
	return []byte(virtualwebauthn.CreateAttestationResponse(v.page, v.auth, v.cred, *parsed))
}

// get returns the answer to the options of a log-in or a verification, and raises the counter.
func (v *device) get(t testing.TB, options any) []byte {
	t.Helper()
	v.cred.Counter++
	return v.repeat(t, options)
}

func (v *device) repeat(t testing.TB, options any) []byte {
	t.Helper()
	parsed, err := virtualwebauthn.ParseAssertionOptions(asText(t, options))
	if err != nil {
		t.Fatal(err)
	}
	return []byte(virtualwebauthn.CreateAssertionResponse(v.page, v.auth, v.cred, *parsed))
}

func asText(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// beginRegistration begins a registration with the required password or
// verification.
func (f fixture) beginRegistration(t testing.TB, a *Account, name string) any {
	t.Helper()
	options, err := f.factors.BeginPasskey(t.Context(), here, a.holder(), name, f.prepareEnrolment(t, a))
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// withPasskey registers a device for an account.
func (f fixture) withPasskey(t testing.TB, a *Account) (*device, factor.Passkey) {
	t.Helper()
	v := newDevice()
	return v, f.registerPasskey(t, a, v)
}

func (f fixture) registerPasskey(t testing.TB, a *Account, v *device) factor.Passkey {
	t.Helper()
	passkey, renewed, err := f.FinishPasskey(t.Context(), here, a, v.create(t, f.beginRegistration(t, a, "Passkey")))
	if err != nil {
		t.Fatal(err)
	}
	a.setSecret(renewed)
	return passkey
}

// logInByPasskey logs in with a device.
func (f fixture) logInByPasskey(t testing.TB, v *device) (Entry, error) {
	t.Helper()
	options, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	return f.FinishPasskeyLogin(t.Context(), here, ceremony.Reveal(), v.get(t, options), testDevice, testTerms)
}

// beginVerification begins a verification.
func (f fixture) beginVerification(t testing.TB, a *Account) any {
	t.Helper()
	options, err := f.BeginPasskeyVerify(t.Context(), here, a)
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// completeVerification begins and finishes a verification.
func (f fixture) completeVerification(t testing.TB, a *Account, v *device) error {
	t.Helper()
	return f.finishVerification(t, a, v.get(t, f.beginVerification(t, a)))
}

// finishRegistration finishes the registration of a passkey.
func (f fixture) finishRegistration(t testing.TB, a *Account, answer []byte) error {
	t.Helper()
	_, renewed, err := f.FinishPasskey(t.Context(), here, a, answer)
	a.setSecret(renewed)
	return err
}

// finishVerification finishes a verification.
func (f fixture) finishVerification(t testing.TB, a *Account, answer []byte) error {
	t.Helper()
	renewed, err := f.FinishPasskeyVerify(t.Context(), here, a, answer)
	a.setSecret(renewed)
	return err
}

func (f fixture) verifyByPasskey(t testing.TB, a *Account) error {
	t.Helper()
	_, renewed, err := f.Verify(t.Context(), a, factor.MethodPasskey, "", 300*time.Second)
	a.setSecret(renewed)
	return err
}
