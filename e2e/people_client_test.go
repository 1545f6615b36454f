package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"
	"github.com/pquerna/otp/totp"
)

// consoleSite returns a site with a console and open registration that forwards
// all calls to the backend.
func consoleSite(b *backend) site {
	s := forwarding(b)
	s.People = "registration open"
	s.Limits = "login_per_user 1000\nlogin_per_address 1000"
	return s
}

// person is a user with a client that keeps cookies, as a browser does. The
// console shows each of their secrets once, so responseRecorder ignores its
// answers.
type person struct {
	*personCredentials
	g    *gateway
	jar  *cookiejar.Jar
	http *http.Client
}

// personCredentials are the credentials that a person uses in every browser.
type personCredentials struct {
	name     string
	password string
	seen     map[string]bool // every secret so far

	seed   string   // of the authenticator app; base32
	step   int64    // of the last code
	backup []string // unused codes

	page    virtualwebauthn.RelyingParty
	device  virtualwebauthn.Authenticator
	passkey virtualwebauthn.Credential
}

// newPerson returns a person without an account.
func (g *gateway) newPerson(name string) *person {
	g.t.Helper()
	p := &person{g: g, personCredentials: &personCredentials{
		name: name, password: "a password of " + name + ", long enough", seen: make(map[string]bool),
		page:   virtualwebauthn.RelyingParty{ID: "localhost", Name: "localhost", Origin: g.Origin()},
		device: virtualwebauthn.NewAuthenticator(), passkey: newPasskey(),
	}}
	p.keepSecret(p.password)
	return p.newBrowser()
}

// newBrowser returns the same person in a browser without cookies.
func (p *person) newBrowser() *person {
	p.g.t.Helper()
	jar := must(cookiejar.New(nil)) // it never fails
	transport := newTransport(http1)
	transport.DisableKeepAlives = true // a reload may close an idle connection at any time
	return &person{p.personCredentials, p.g, jar, &http.Client{Transport: transport, Jar: jar, Timeout: waitLimit}}
}

// newPasskey returns a new key. The authenticator drops leading zeros of the
// coordinates, which RFC 9053 section 7.1.1 does not allow; newPasskey discards
// such keys.
func newPasskey() virtualwebauthn.Credential {
	const whole = 77 // bytes of a key on P-256 as COSE
	for {
		if key := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2); len(key.Key.AttestationData()) == whole {
			return key
		}
	}
}

// withStolenCookies returns another browser with a copy of the current cookies.
func (p *person) withStolenCookies() *person {
	p.g.t.Helper()
	thief := p.newBrowser()
	thief.jar.SetCookies(p.address(), p.jar.Cookies(p.address()))
	return thief
}

// keepSecret records secrets that must not appear anywhere.
func (p *person) keepSecret(secrets ...string) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	for _, secret := range secrets {
		if secret != "" && !p.seen[secret] {
			p.seen[secret] = true
			p.g.secrets = append(p.g.secrets, secret)
		}
	}
}

// address returns the site's URL for the cookie jar.
func (p *person) address() *url.URL {
	at, err := url.Parse(p.page.Origin)
	if err != nil {
		p.g.t.Fatal(err)
	}
	return at
}

// session returns the secret in the session cookie.
func (p *person) session() string {
	for _, cookie := range p.jar.Cookies(p.address()) {
		if cookie.Name == "modelgate_session" {
			return cookie.Value
		}
	}
	return ""
}

// consoleAnswer is an answer of the console.
type consoleAnswer struct {
	Status  int
	Success bool            `json:"success"`
	Message string          `json:"message"`
	Code    string          `json:"code"`
	Data    json.RawMessage `json:"data"`
	Text    string          // all of it
}

// send calls the console. An error means that no answer arrived.
func (p *person) send(method, path string, in any, header ...string) (a consoleAnswer, err error) {
	var body []byte
	switch in := in.(type) {
	case nil:
	case string:
		body = []byte(in)
	default:
		if body, err = json.Marshal(in); err != nil {
			return a, err
		}
	}
	req, err := http.NewRequestWithContext(p.g.t.Context(), method, p.page.Origin+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("User-Agent", "a browser of "+p.name)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	for _, cookie := range resp.Cookies() {
		p.keepSecret(cookie.Value)
	}
	a.Status, a.Text = resp.StatusCode, string(text)
	err = json.Unmarshal(text, &a)
	return a, err
}

// mustSend is send for a request that must be answered, with any status.
func (p *person) mustSend(method, path string, in any, header ...string) consoleAnswer {
	p.g.t.Helper()
	a, err := p.send(method, path, in, header...)
	if err != nil {
		p.g.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// mustSucceed sends a request that must succeed, and decodes the data into out
// unless it is nil.
func (p *person) mustSucceed(method, path string, in, out any) {
	p.g.t.Helper()
	a := p.mustSend(method, path, in)
	if a.Status != http.StatusOK || !a.Success {
		p.g.t.Fatalf("%s %s by %s: %d %s", method, path, p.name, a.Status, a.Text)
	}
	if out != nil {
		if err := json.Unmarshal(a.Data, out); err != nil {
			p.g.t.Fatalf("%s %s: %v: %s", method, path, err, a.Text)
		}
	}
}

// mustFail checks that a request is refused with this status and code.
func (p *person) mustFail(method, path string, in any, status int, code string) {
	p.g.t.Helper()
	if a := p.mustSend(method, path, in); a.Status != status || a.Success || a.Code != code || strings.Contains(a.Text, `"verified":true`) {
		p.g.t.Errorf("%s %s by %s: %d %s, want %d %s", method, path, p.name, a.Status, a.Text, status, code)
	}
}

// loggedIn reports whether the cookie gives access to the account.
func (p *person) loggedIn() bool {
	p.g.t.Helper()
	switch a := p.mustSend(http.MethodGet, "/api/user/self", nil); {
	case a.Status == http.StatusOK:
		return true
	case a.Status == http.StatusUnauthorized && a.Code == "NOT_LOGGED_IN":
		return false
	default:
		p.g.t.Fatalf("the session of %s: %d %s", p.name, a.Status, a.Text)
		panic("unreachable")
	}
}

func (p *person) credentials() map[string]string {
	return map[string]string{"username": p.name, "password": p.password}
}

// register creates the account and logs in.
func (p *person) register() {
	p.g.t.Helper()
	p.mustSucceed(http.MethodPost, "/api/user/register", p.credentials(), nil)
	p.logIn()
}

// logIn logs in with name and password, and a backup code if a second factor is
// required.
func (p *person) logIn() {
	p.g.t.Helper()
	var due struct {
		SecondFactor bool `json:"require_2fa"`
	}
	p.mustSucceed(http.MethodPost, "/api/user/login", p.credentials(), &due)
	if due.SecondFactor {
		p.mustSucceed(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": p.backupCode()}, nil)
	}
}

// enrolTOTP enrols an authenticator app.
func (p *person) enrolTOTP() {
	p.g.t.Helper()
	var made struct{ Secret, URI, QR string }
	p.mustSucceed(http.MethodPost, "/api/user/2fa/setup", map[string]string{"password": p.password}, &made)
	p.seed, p.step = made.Secret, 0
	var shown struct {
		Codes []string `json:"backup_codes"`
	}
	p.mustSucceed(http.MethodPost, "/api/user/2fa/enable", map[string]string{"code": p.code()}, &shown)
	p.backup = shown.Codes
	p.keepSecret(made.Secret, made.URI, made.QR)
	for _, code := range shown.Codes {
		p.keepSecret(code, strings.ReplaceAll(code, "-", ""))
	}
	if len(shown.Codes) != 10 || made.URI == "" || !strings.HasPrefix(made.QR, "data:image/png;base64,") {
		p.g.t.Errorf("enrolment shows %d backup codes, %q and %.40q", len(shown.Codes), made.URI, made.QR)
	}
}

// codeStep is the validity of a code in seconds. The gateway accepts the codes
// of the current step and of its two neighbours, each at most once and in
// order.
const codeStep = 30

// nextStep returns the first step whose code is still valid and unused.
func (p *person) nextStep() int64 {
	const soon = 8 // seconds until the gateway checks it
	return max(p.step+1, (time.Now().Unix()+soon)/codeStep-1)
}

// code returns an unused code. It waits before the fourth within 30 s.
func (p *person) code() string {
	p.g.t.Helper()
	p.step = p.nextStep()
	if early := time.Until(time.Unix((p.step-1)*codeStep, 0)); early > 0 {
		select {
		case <-time.After(early):
		case <-p.g.t.Context().Done():
		}
	}
	code := p.codeOf(p.step)
	p.keepSecret(strconv.Quote(code)) // six digits by themselves may be part of any number
	return code
}

func (p *person) codeOf(step int64) string {
	p.g.t.Helper()
	code, err := totp.GenerateCode(p.seed, time.Unix(step*codeStep, 0))
	if err != nil {
		p.g.t.Fatal(err)
	}
	return code
}

// wrongCode returns a code that is not valid near the current time.
func (p *person) wrongCode() string {
	now := time.Now().Unix() / codeStep
	for n := range 1000 {
		wrong := fmt.Sprintf("%06d", n)
		if !slices.ContainsFunc([]int64{-2, -1, 0, 1, 2, 3}, func(by int64) bool { return p.codeOf(now+by) == wrong }) {
			return wrong
		}
	}
	panic("unreachable: a thousand codes cannot all be right")
}

// backupCode removes a backup code from the list and returns it.
func (p *person) backupCode() string {
	p.g.t.Helper()
	if len(p.backup) == 0 {
		p.g.t.Fatalf("%s has no backup code left", p.name)
	}
	code := p.backup[0]
	p.backup = p.backup[1:]
	return code
}

// verifyCode passes step-up with a code.
func (p *person) verifyCode(code string) {
	p.g.t.Helper()
	p.checkVerified(p.mustSend(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": code}))
}

func (p *person) checkVerified(a consoleAnswer) {
	p.g.t.Helper()
	var done struct {
		Verified bool  `json:"verified"`
		Expires  int64 `json:"expires_at"`
	}
	if err := json.Unmarshal(a.Data, &done); err != nil {
		p.g.t.Fatalf("%v: %d %s", err, a.Status, a.Text)
	}
	const lifetime, slow = 300, 30
	if left := done.Expires - time.Now().Unix(); a.Status != http.StatusOK || a.Message != "验证成功" || !done.Verified || left > lifetime || left < lifetime-slow {
		p.g.t.Errorf("/api/verify returned %d %s", a.Status, a.Text)
	}
}

// createPasskey registers the passkey. A user with a second factor must have
// passed step-up.
func (p *person) createPasskey(in any) {
	p.g.t.Helper()
	p.finishRegistration(p.mustSend(http.MethodPost, "/api/user/passkey/register/begin", in))
}

// finishRegistration finishes the registration that returned these options.
func (p *person) finishRegistration(options consoleAnswer) {
	p.g.t.Helper()
	asked, err := virtualwebauthn.ParseAttestationOptions(string(options.Data))
	if err != nil {
		p.g.t.Fatalf("%v: %s", err, options.Text)
	}
	p.device.Options.UserHandle = []byte(asked.UserID)
	p.mustSucceed(http.MethodPost, "/api/user/passkey/register/finish", virtualwebauthn.CreateAttestationResponse(p.page, p.device, p.passkey, *asked), nil)
}

// usePasskey performs the passkey ceremony of one of the console's operations.
func (p *person) usePasskey(what string) {
	p.g.t.Helper()
	options := p.mustSend(http.MethodPost, "/api/user/passkey/"+what+"/begin", nil)
	p.mustSucceed(http.MethodPost, "/api/user/passkey/"+what+"/finish", p.signAssertion(options), nil)
}

// signAssertion returns the passkey's assertion for these options.
func (p *person) signAssertion(options consoleAnswer) string {
	p.g.t.Helper()
	asked, err := virtualwebauthn.ParseAssertionOptions(string(options.Data))
	if err != nil {
		p.g.t.Fatalf("%v: %s", err, options.Text)
	}
	p.passkey.Counter++
	return virtualwebauthn.CreateAssertionResponse(p.page, p.device, p.passkey, *asked)
}

// verifyByPasskey passes step-up with the passkey.
func (p *person) verifyByPasskey() {
	p.g.t.Helper()
	p.usePasskey("verify")
	p.checkVerified(p.mustSend(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}))
}

// createKey creates an API key.
func (p *person) createKey(name string) issued {
	p.g.t.Helper()
	var key issued
	p.mustSucceed(http.MethodPost, "/api/token/", map[string]string{"name": name, "password": p.password}, &key)
	p.keepSecret(key.Secret)
	return key
}

// factors is the console's answer about the second factors.
type factors struct {
	Enabled     bool `json:"enabled"`
	TOTP        bool `json:"totp"`
	BackupCodes int  `json:"backup_codes"`
	Passkeys    int  `json:"passkeys"`
}

func (p *person) factors() (f factors) {
	p.g.t.Helper()
	p.mustSucceed(http.MethodGet, "/api/user/2fa/status", nil, &f)
	return f
}

// canCall reports whether a call with the key reaches the backend.
func (p *person) canCall(key issued) bool {
	p.g.t.Helper()
	a := p.g.call("/v1/messages", callBodies["/v1/messages"], "X-Api-Key", key.Secret)
	if a.Status != http.StatusOK && a.Status != http.StatusUnauthorized {
		p.g.t.Fatalf("the call with a key of %s: %d %s", p.name, a.Status, cmp.Or(a.Body, fmt.Sprint(a.Err)))
	}
	return a.Status == http.StatusOK
}

// copyKeyFile copies a key file to where the gateway expects its own. It does
// nothing if from is empty.
func (g *gateway) copyKeyFile(from string) {
	g.t.Helper()
	if from == "" {
		return
	}
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(g.Store+".key", text, 0o600)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// newConsoleGateway starts a gateway with a backend and a console.
func newConsoleGateway(t *testing.T) *gateway {
	t.Helper()
	b := newBackend(t, answerCalls)
	g := newGateway(t, consoleSite(b), b)
	g.start()
	return g
}
