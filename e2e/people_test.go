package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestTheConsoleFromRegistrationToLogout covers everything from the registration to the end
// of all sessions, over HTTP with a store on disk.
func TestTheConsoleFromRegistrationToLogout(t *testing.T) {
	t.Parallel()
	g := newConsoleGateway(t)
	p := g.newPerson("ada")
	p.mustFail(http.MethodGet, "/api/user/self", nil, http.StatusUnauthorized, "NOT_LOGGED_IN")
	p.register()
	first := p.withStolenCookies()

	// An authenticator app. From now on lasting changes need step-up, which
	// belongs to the session and not to the user.
	p.enrolTOTP()
	if first.loggedIn() || !p.loggedIn() {
		t.Error("the old secret of the session is valid after a change of the factors, or the new one is not")
	}
	p.mustFail(http.MethodPost, "/api/token/", map[string]string{"name": "laptop", "password": p.password}, http.StatusForbidden, "VERIFICATION_REQUIRED")
	p.mustFail(http.MethodPost, "/api/user/passkey/register/begin", map[string]string{"name": "phone"}, http.StatusForbidden, "VERIFICATION_REQUIRED")
	p.mustFail(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": p.wrongCode()}, http.StatusForbidden, "VERIFICATION_FAILED")
	before := p.withStolenCookies()
	p.verifyCode(p.code())
	if before.loggedIn() || !p.loggedIn() {
		t.Error("the old secret of the session is valid after a step-up, or the new one is not")
	}
	p.createPasskey(map[string]string{"name": "phone"})
	if f := p.factors(); !f.Enabled || !f.TOTP || f.Passkeys != 1 || f.BackupCodes != 10 {
		t.Errorf("the factors are %+v", f)
	}

	// Log-in with the passkey and without a name; step-up with it; a key.
	other := p.newBrowser()
	other.usePasskey("login")
	other.mustFail(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}, http.StatusBadRequest, "PASSKEY_NOT_COMPLETED")
	other.mustFail(http.MethodPost, "/api/token/", map[string]string{"name": "laptop"}, http.StatusForbidden, "VERIFICATION_REQUIRED")
	other.verifyByPasskey()
	other.mustFail(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}, http.StatusBadRequest, "PASSKEY_NOT_COMPLETED")
	key := other.createKey("laptop")
	if !p.canCall(key) {
		t.Fatal("the key is refused")
	}

	// Log-in with the password: until the second factor, only that step works.
	third := p.newBrowser()
	var due struct {
		SecondFactor bool     `json:"require_2fa"`
		Methods      []string `json:"methods"`
	}
	third.mustSucceed(http.MethodPost, "/api/user/login", p.credentials(), &due)
	if !due.SecondFactor || strings.Join(due.Methods, " ") != "2fa passkey" {
		t.Errorf("the log-in returned %+v", due)
	}
	third.mustFail(http.MethodGet, "/api/user/self", nil, http.StatusUnauthorized, "SECOND_FACTOR_REQUIRED")
	half := third.withStolenCookies()
	third.mustSucceed(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": p.code()}, nil)
	if half.loggedIn() || !third.loggedIn() {
		t.Error("the secret of the half-open session is valid after the second factor, or the new one is not")
	}
	third.mustFail(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": p.codeOf(p.step)}, http.StatusForbidden, "VERIFICATION_FAILED")

	// The end of one session, of a log-out, and of all sessions.
	var list struct {
		Items []struct {
			ID, Agent string
			Current   bool
		}
	}
	p.mustSucceed(http.MethodGet, "/api/user/self/sessions", nil, &list)
	if len(list.Items) != 3 {
		t.Errorf("the sessions are %+v", list.Items)
	}
	for _, s := range list.Items {
		if !strings.Contains(s.Agent, "ada") {
			t.Errorf("the agent of a session is %q", s.Agent)
		}
	}
	copied := third.withStolenCookies()
	third.mustSucceed(http.MethodPost, "/api/user/logout", nil, nil)
	if copied.loggedIn() {
		t.Error("a session is valid after a log-out")
	}
	again := p.withStolenCookies()
	p.mustSucceed(http.MethodDelete, "/api/user/self/sessions?which=all", nil, nil)
	for name, who := range map[string]*person{"the current session": p, "its copy": again, "the other session": other} {
		if who.loggedIn() {
			t.Errorf("after the end of all sessions, %s is valid", name)
		}
	}
	if !p.canCall(key) {
		t.Error("the key is refused after the end of the sessions")
	}
}

func TestSessionsAndStepUpSurviveReloads(t *testing.T) {
	t.Parallel()
	g := newConsoleGateway(t)
	reload := func() {
		t.Helper()
		if err := g.reload(); err != nil {
			t.Fatal(err)
		}
	}
	p := g.newPerson("grace")
	p.register()
	reload()
	p.enrolTOTP()
	half := p.newBrowser()
	half.mustSucceed(http.MethodPost, "/api/user/login", p.credentials(), nil)
	code := p.code()
	p.verifyCode(code)
	reload()
	p.mustFail(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": code}, http.StatusForbidden, "VERIFICATION_FAILED")
	p.createPasskey(map[string]string{"name": "phone"}) // with the earlier step-up
	options := p.mustSend(http.MethodPost, "/api/user/passkey/verify/begin", nil)
	login := p.newBrowser()
	entering := login.mustSend(http.MethodPost, "/api/user/passkey/login/begin", nil)
	reload()
	half.mustSucceed(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": half.backupCode()}, nil)
	p.mustSucceed(http.MethodPost, "/api/user/passkey/verify/finish", p.signAssertion(options), nil)
	login.mustSucceed(http.MethodPost, "/api/user/passkey/login/finish", login.signAssertion(entering), nil)
	reload()
	p.checkVerified(p.mustSend(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}))
	if key := p.createKey("after"); !p.canCall(key) {
		t.Error("the key is refused")
	}
	for name, who := range map[string]*person{"first": p, "second": half, "third": login} {
		if !who.loggedIn() {
			t.Errorf("the %s session has ended", name)
		}
	}
}
