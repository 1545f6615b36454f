package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestTheWholeWalk uses the console as a user does. It makes an account, two factors, a
// step-up by each and an API key, and logs out everywhere. After that no old credential is
// accepted.
func TestTheWholeWalk(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	b.refused(t, "GET", "/api/user/self", "", 401, "NOT_LOGGED_IN")
	name := b.registers(t)
	first := b.cookies()

	// The factors: an app, and then, with a step-up, a passkey.
	backup := b.enrols(t)
	if b.cookies() == first {
		t.Error("the session has its old secret after a change of the factors")
	}
	b.refused(t, "POST", "/api/user/passkey/register/begin", `{"name":"phone"}`, 403, "VERIFICATION_REQUIRED")
	before := b.cookies()
	var stamp struct {
		Verified bool  `json:"verified"`
		Expires  int64 `json:"expires_at"`
	}
	answer, e := b.ask(t, "POST", "/api/verify", `{"method":"2fa","code":`+b.code(t)+`}`)
	into(t, e.Data, &stamp)
	if answer.Status != 200 || e.Message != "验证成功" || !stamp.Verified || stamp.Expires < g.Now().Unix()+290 || stamp.Expires > g.Now().Unix()+300 {
		t.Errorf("verify is answered %d %s", answer.Status, answer.Body)
	}
	if b.cookies() == before {
		t.Error("the session has its old secret after a step-up")
	}
	options := b.does(t, "POST", "/api/user/passkey/register/begin", `{"name":"phone"}`)
	var passkey struct{ ID, Name string }
	into(t, b.does(t, "POST", "/api/user/passkey/register/finish", b.makesPasskey(t, options)), &passkey)
	if passkey.ID == "" || passkey.Name != "phone" {
		t.Errorf("the passkey is %+v", passkey)
	}

	// A complete log-in by the passkey alone.
	b.jar = map[string]string{}
	options = b.does(t, "POST", "/api/user/passkey/login/begin", "")
	if strings.Contains(string(options), passkey.ID) {
		t.Errorf("the log-in names a user: %s", options)
	}
	b.does(t, "POST", "/api/user/passkey/login/finish", b.usesPasskey(t, options))

	// A step-up by the passkey: the assertion is good for one verification.
	b.refused(t, "POST", "/api/verify", `{"method":"passkey"}`, 400, "PASSKEY_NOT_COMPLETED")
	options = b.does(t, "POST", "/api/user/passkey/verify/begin", "")
	b.does(t, "POST", "/api/user/passkey/verify/finish", b.usesPasskey(t, options))
	b.does(t, "POST", "/api/verify", `{"method":"passkey","code":"ignored"}`)
	b.refused(t, "POST", "/api/verify", `{"method":"passkey"}`, 400, "PASSKEY_NOT_COMPLETED")

	// The step-up allows a new API key and an access token.
	var key gatetest.Key
	into(t, b.does(t, "POST", "/api/token/", `{"name":"laptop","models":["free-*"]}`), &key)
	call := func() int {
		return g.Do(t, "POST", "/v1/chat/completions", "Authorization: Bearer "+key.Secret, `{"model":"free-1","messages":[]}`).Status
	}
	g.Credit(t, name, "5.00")
	if got := call(); got == http.StatusUnauthorized {
		t.Errorf("the key is answered %d", got)
	}
	var token struct {
		Secret string `json:"access_token"`
	}
	into(t, b.does(t, "POST", "/api/user/token", ""), &token)
	program := account{gate: g, name: name, auth: "Authorization: Bearer " + token.Secret}
	if got, _ := program.ask(t, "GET", "/api/user/self", ""); got.Status != 200 {
		t.Errorf("the token is answered %d", got.Status)
	}
	// The step-up belongs to the session: the token has none.
	if got, e := program.ask(t, "POST", "/api/token/", `{"name":"other"}`); e.Code != "VERIFICATION_REQUIRED" {
		t.Errorf("the token made a key: %d %s", got.Status, got.Body)
	}

	// A second browser, by password and backup code.
	other := newBrowser(g)
	var due struct {
		SecondFactor bool     `json:"require_2fa"`
		Methods      []string `json:"methods"`
	}
	into(t, other.does(t, "POST", "/api/user/login", credentials(name, password)), &due)
	if !due.SecondFactor || fmt.Sprint(due.Methods) != "[2fa passkey]" {
		t.Errorf("the log-in says %+v", due)
	}
	half := other.cookies()
	other.does(t, "POST", "/api/user/login/2fa", fmt.Sprintf(`{"code":%q}`, backup[0]))
	if other.cookies() == half {
		t.Error("the session has the secret of the half-open one")
	}
	other.refused(t, "POST", "/api/verify", fmt.Sprintf(`{"method":"2fa","code":%q}`, backup[0]), 403, "VERIFICATION_FAILED")

	var sessions page[struct {
		ID, Address, Agent string
		Current            bool
	}]
	into(t, b.does(t, "GET", "/api/user/self/sessions", ""), &sessions)
	current := 0
	for _, s := range sessions.Items {
		if s.Address != "127.0.0.1" || !strings.HasPrefix(s.Agent, "Go-http-client") {
			t.Errorf("a session is %+v", s)
		}
		if s.Current {
			current++
		}
	}
	if current != 1 || sessions.Total < 2 {
		t.Errorf("the sessions are %+v", sessions)
	}
	var activity page[struct{ Action string }]
	into(t, b.does(t, "GET", "/api/user/activity", ""), &activity)
	if activity.Total < 8 {
		t.Errorf("the activity is %+v", activity)
	}

	// All sessions end.
	old := []string{first, before, b.cookies(), half, other.cookies()}
	b.does(t, "DELETE", "/api/user/self/sessions?which=all", "")
	for i, cookies := range old {
		refused(t, fmt.Sprintf("cookie %d", i), g.Do(t, "GET", "/api/user/self", cookies, ""), 401, "NOT_LOGGED_IN")
	}
	if len(b.jar) != 0 {
		t.Errorf("the browser keeps %v", b.jar)
	}
	if got := call(); got == http.StatusUnauthorized {
		t.Error("the key ended with the sessions")
	}

	// No secret is stored or logged in clear.
	for _, secret := range []string{password, b.seed, key.Secret, token.Secret, backup[1], strings.TrimPrefix(strings.TrimSpace(first), "Cookie: modelgate_session=")} {
		if secret == "" || g.Logged(secret) {
			t.Errorf("a secret is in the log: %.4s…", secret)
		}
	}
}

func TestAPasswordChangeEndsTheOthersAndTheToken(t *testing.T) {
	g := start(t)
	b, other := newBrowser(g), newBrowser(g)
	name := b.registers(t)
	other.does(t, "POST", "/api/user/login", credentials(name, password))
	var token struct {
		Secret string `json:"access_token"`
	}
	into(t, b.does(t, "POST", "/api/user/token", ""), &token)
	before := b.cookies()

	const next = "another horse, another battery"
	b.refused(t, "POST", "/api/user/password", fmt.Sprintf(`{"password":"wrong","new_password":%q}`, next), 403, "VERIFICATION_FAILED")
	b.refused(t, "POST", "/api/user/password", fmt.Sprintf(`{"password":%q,"new_password":"short"}`, password), 400, "INVALID_PARAMETER")
	b.does(t, "GET", "/api/user/self", "")
	b.does(t, "POST", "/api/user/password", fmt.Sprintf(`{"password":%q,"new_password":%q}`, password, next))

	b.does(t, "GET", "/api/user/self", "")
	for what, credential := range map[string]string{"the other session": other.cookies(), "the old secret of this one": before, "the token": "Authorization: Bearer " + token.Secret} {
		refused(t, what, g.Do(t, "GET", "/api/user/self", credential, ""), 401, "NOT_LOGGED_IN")
	}
	other.refused(t, "POST", "/api/user/login", credentials(name, password), 401, "NOT_LOGGED_IN")
	other.does(t, "POST", "/api/user/login", credentials(name, next))
}

func TestDisablingEndsEverythingOnTheNextRequest(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	b.does(t, "GET", "/api/user/self", "")
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/disable", nil, nil)
	b.refused(t, "GET", "/api/user/self", "", 401, "NOT_LOGGED_IN")
	b.jar = map[string]string{}
	b.refused(t, "POST", "/api/user/login", credentials(name, "wrong "+password), 401, "NOT_LOGGED_IN")
	b.refused(t, "POST", "/api/user/login", credentials(name, password), 403, "USER_DISABLED")
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/enable", nil, nil)
	b.does(t, "POST", "/api/user/login", credentials(name, password))
}

func TestTheFirstAdministratorIsMadeByTheCodeOfTheLogOnce(t *testing.T) {
	g := start(t)
	line := g.WaitLine(t, func(l gatetest.Line) bool { return strings.HasPrefix(l.Text("msg"), "there is no administrator yet") })
	b := newBrowser(g)
	setup := func(code string) string {
		return fmt.Sprintf(`{"code":%q,"username":"root","password":%q}`, code, password)
	}
	var facts struct {
		Setup        bool     `json:"setup_required"`
		Registration bool     `json:"registration"`
		Passkeys     bool     `json:"passkeys"`
		RPID         string   `json:"rp_id"`
		Currency     string   `json:"currency"`
		Version      string   `json:"version"`
		Providers    []string `json:"payment_providers"`
	}
	into(t, b.does(t, "GET", "/api/status", ""), &facts)
	if !facts.Setup || !facts.Registration || !facts.Passkeys || facts.RPID != "localhost" || facts.Currency != "USD" || facts.Version == "" || fmt.Sprint(facts.Providers) != "[demo]" {
		t.Errorf("the status is %+v", facts)
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil) // is no administrator
	into(t, b.does(t, "GET", "/api/status", ""), &facts)
	if !facts.Setup {
		t.Error("a user of an operator has ended the set-up")
	}
	b.refused(t, "POST", "/api/setup", setup(line.Text("code")+"x"), 403, "VERIFICATION_FAILED")
	b.refused(t, "POST", "/api/setup", strings.Replace(setup(line.Text("code")), password, "short", 1), 400, "INVALID_PARAMETER")
	var made struct{ Role string }
	into(t, b.does(t, "POST", "/api/setup", setup(line.Text("code"))), &made)
	if made.Role != "admin" {
		t.Error("the user of the set-up is no administrator")
	}
	b.does(t, "POST", "/api/user/login", credentials("root", password))
	b.refused(t, "POST", "/api/setup", setup(line.Text("code")), 409, "CONFLICT")
	into(t, b.does(t, "GET", "/api/status", ""), &facts)
	if facts.Setup {
		t.Error("there is an administrator, and the set-up is still due")
	}
	if err := g.Reload(gatetest.Config{App: app, Site: site}); err != nil {
		t.Fatal(err)
	}
}

func TestAForgottenPasswordIsResetByTheOperatorsCode(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	var issued struct{ Code string }
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/reset-password", nil, &issued)
	const next = "a password that is remembered"
	reset := func(code, password string) string { return fmt.Sprintf(`{"code":%q,"password":%q}`, code, password) }
	anonymous := newBrowser(g)
	anonymous.refused(t, "POST", "/api/user/password/reset", reset("wrong", next), 403, "VERIFICATION_FAILED")
	anonymous.refused(t, "POST", "/api/user/password/reset", reset(issued.Code, "short"), 400, "INVALID_PARAMETER")
	anonymous.does(t, "POST", "/api/user/password/reset", reset(issued.Code, next))
	anonymous.refused(t, "POST", "/api/user/password/reset", reset(issued.Code, next), 403, "VERIFICATION_FAILED")
	b.refused(t, "GET", "/api/user/self", "", 401, "NOT_LOGGED_IN")
	anonymous.does(t, "POST", "/api/user/login", credentials(name, next))
	if g.Logged(issued.Code) {
		t.Error("the code is in the log")
	}
}

func TestRegistrationIsClosedUnlessItIsSaidToBeOpen(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_console"})
	b := newBrowser(g)
	b.refused(t, "POST", "/api/user/register", credentials("somebody", password), 403, "FORBIDDEN")
	// Without base_url there are no passkeys either.
	b.refused(t, "POST", "/api/user/passkey/login/begin", "", 404, "NOT_FOUND")
	var facts struct {
		Registration, Passkeys bool
	}
	into(t, b.does(t, "GET", "/api/status", ""), &facts)
	if facts.Registration || facts.Passkeys {
		t.Errorf("the status is %+v", facts)
	}
}
