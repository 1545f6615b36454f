package console_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"
	"github.com/pquerna/otp/totp"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// browser is the browser of a user. It stores cookies, and has the user's authenticator app
// and passkeys.
type browser struct {
	gate *gatetest.Gate
	jar  map[string]string
	seed string // of the authenticator app

	site          virtualwebauthn.RelyingParty
	authenticator virtualwebauthn.Authenticator
	passkey       virtualwebauthn.Credential
}

func newBrowser(g *gatetest.Gate) *browser {
	_, port, _ := strings.Cut(g.Address, ":")
	passkey := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)
	for len(passkey.Key.AttestationData()) != wholeKey {
		passkey = virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)
	}
	return &browser{
		gate: g, jar: make(map[string]string),
		site:          virtualwebauthn.RelyingParty{ID: "localhost", Name: "localhost", Origin: "http://localhost:" + port},
		authenticator: virtualwebauthn.NewAuthenticator(),
		passkey:       passkey,
	}
}

// wholeKey is the length in bytes of a complete key of the software authenticator. It
// drops leading zeros, which real ones do not; such keys are drawn again.
const wholeKey = 77

// cookies returns the Cookie header that the browser sends.
func (b *browser) cookies() string {
	if len(b.jar) == 0 {
		return ""
	}
	var crumbs []string
	for _, name := range slices.Sorted(maps.Keys(b.jar)) {
		crumbs = append(crumbs, name+"="+b.jar[name])
	}
	return "Cookie: " + strings.Join(crumbs, "; ") + "\n"
}

// ask sends a request with the cookies, and stores the cookies of the answer.
func (b *browser) ask(t testing.TB, method, path, body string) (gatetest.Answer, envelope) {
	t.Helper()
	headers := b.cookies()
	if body != "" {
		headers += "Content-Type: application/json"
	}
	answer, e := open(t, b.gate.Do(t, method, path, headers, body))
	for _, cookie := range (&http.Response{Header: answer.Header}).Cookies() {
		if cookie.MaxAge < 0 {
			delete(b.jar, cookie.Name)
		} else {
			b.jar[cookie.Name] = cookie.Value
		}
	}
	return answer, e
}

// does sends a request that must succeed, and returns the data.
func (b *browser) does(t testing.TB, method, path, body string) json.RawMessage {
	t.Helper()
	answer, e := b.ask(t, method, path, body)
	if !e.Success {
		t.Fatalf("%s %s: answered %d %s", method, path, answer.Status, answer.Body)
	}
	return e.Data
}

// refused sends a request that must be refused.
func (b *browser) refused(t testing.TB, method, path, body string, status int, code string) {
	t.Helper()
	answer, _ := b.ask(t, method, path, body)
	refused(t, method+" "+path, answer, status, code)
}

const password = "correct horse battery staple"

// credentials returns the body of a log-in or a registration.
func credentials(name, password string) string {
	return fmt.Sprintf(`{"username":%q,"password":%q}`, name, password)
}

// registers makes an account and logs in.
func (b *browser) registers(t testing.TB) (name string) {
	t.Helper()
	name = fmt.Sprintf("person-%d", accounts.Add(1))
	b.does(t, "POST", "/api/user/register", credentials(name, password))
	b.does(t, "POST", "/api/user/login", credentials(name, password))
	return name
}

// code advances the clock and returns a code of the authenticator app that was not used
// before.
func (b *browser) code(t testing.TB) string {
	t.Helper()
	b.gate.Wait(30 * time.Second)
	code, err := totp.GenerateCode(b.seed, b.gate.Now())
	if err != nil {
		t.Fatal(err)
	}
	return `"` + code + `"`
}

// enrols makes the authenticator app the first factor of the user, and returns the
// backup codes.
func (b *browser) enrols(t testing.TB) []string {
	t.Helper()
	var enrolment struct {
		Secret  string `json:"secret"`
		URI     string `json:"uri"`
		QR      string `json:"qr"`
		Expires int64  `json:"expires_at"`
	}
	into(t, b.does(t, "POST", "/api/user/2fa/setup", fmt.Sprintf(`{"password":%q}`, password)), &enrolment)
	if !strings.HasPrefix(enrolment.URI, "otpauth://totp/127.0.0.1:") || !strings.Contains(enrolment.URI, enrolment.Secret) ||
		!strings.HasPrefix(enrolment.QR, "data:image/png;base64,") || enrolment.Expires <= b.gate.Now().Unix() {
		t.Errorf("the enrolment is %+v", enrolment)
	}
	b.seed = enrolment.Secret
	var codes struct {
		Codes []string `json:"backup_codes"`
	}
	into(t, b.does(t, "POST", "/api/user/2fa/enable", `{"code":`+b.code(t)+`}`), &codes)
	if len(codes.Codes) != 10 {
		t.Fatalf("%d backup codes", len(codes.Codes))
	}
	return codes.Codes
}

// verifies proves the second factor by a code.
func (b *browser) verifies(t testing.TB) {
	t.Helper()
	b.does(t, "POST", "/api/verify", `{"method":"2fa","code":`+b.code(t)+`}`)
}

// makesPasskey returns the answer to the options of register/begin, as a browser makes it.
func (b *browser) makesPasskey(t testing.TB, options json.RawMessage) string {
	t.Helper()
	parsed, err := virtualwebauthn.ParseAttestationOptions(string(options))
	if err != nil {
		t.Fatalf("%v: %s", err, options)
	}
	var user struct {
		PublicKey struct {
			User struct {
				Of string `json:"id"`
			} `json:"user"`
		} `json:"publicKey"`
	}
	into(t, options, &user)
	b.authenticator.Options.UserHandle = fromBase64URL(t, user.PublicKey.User.Of)
	answer := virtualwebauthn.CreateAttestationResponse(b.site, b.authenticator, b.passkey, *parsed)
	b.authenticator.AddCredential(b.passkey)
	return answer
}

// usesPasskey returns the answer to the options of login/begin or verify/begin.
func (b *browser) usesPasskey(t testing.TB, options json.RawMessage) string {
	t.Helper()
	parsed, err := virtualwebauthn.ParseAssertionOptions(string(options))
	if err != nil {
		t.Fatalf("%v: %s", err, options)
	}
	b.passkey.Counter++
	return virtualwebauthn.CreateAssertionResponse(b.site, b.authenticator, b.passkey, *parsed)
}

func into(t testing.TB, data json.RawMessage, out any) {
	t.Helper()
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}

func fromBase64URL(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// current returns a body with the code of the present moment, for stores that use the
// machine's clock.
func current(t testing.TB, b *browser) string {
	t.Helper()
	code, err := totp.GenerateCode(b.seed, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"code":%q}`, code)
}
