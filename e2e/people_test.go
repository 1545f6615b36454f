package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestTheWholePathOfAPerson is from the registration to the end of all sessions,
// over real HTTP, with a store on disk.
func TestTheWholePathOfAPerson(t *testing.T) {
	t.Parallel()
	g := peopleOf(t)
	p := g.newPerson("ada")
	p.isRefused(http.MethodGet, "/api/user/self", nil, http.StatusUnauthorized, "NOT_LOGGED_IN")
	p.registers()
	first := p.stolen()

	// An app. From now on a step-up is due for what lasts, and it is the session
	// that has it, not the person.
	p.enrols()
	if first.in() || !p.in() {
		t.Error("the old secret of the session is in force after a change of the factors, or the new one is not")
	}
	p.isRefused(http.MethodPost, "/api/token/", map[string]string{"name": "laptop", "password": p.password}, http.StatusForbidden, "VERIFICATION_REQUIRED")
	p.isRefused(http.MethodPost, "/api/user/passkey/register/begin", map[string]string{"name": "phone"}, http.StatusForbidden, "VERIFICATION_REQUIRED")
	p.isRefused(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": p.wrongCode()}, http.StatusForbidden, "VERIFICATION_FAILED")
	before := p.stolen()
	p.verifies(p.code())
	if before.in() || !p.in() {
		t.Error("the old secret of the session is in force after a step-up, or the new one is not")
	}
	p.makesPasskey(map[string]string{"name": "phone"})
	if f := p.factors(); !f.Enabled || !f.TOTP || f.Passkeys != 1 || f.BackupCodes != 10 {
		t.Errorf("the factors are %+v", f)
	}

	// In by the passkey, with no name given; a step-up by it; a key.
	other := p.elsewhere()
	other.usesPasskey("login")
	other.isRefused(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}, http.StatusBadRequest, "PASSKEY_NOT_COMPLETED")
	other.isRefused(http.MethodPost, "/api/token/", map[string]string{"name": "laptop"}, http.StatusForbidden, "VERIFICATION_REQUIRED")
	other.verifiesByPasskey()
	other.isRefused(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}, http.StatusBadRequest, "PASSKEY_NOT_COMPLETED")
	key := other.makesKey("laptop")
	if !p.calls(key) {
		t.Fatal("the key does not call")
	}

	// In by the password: half at first, and then nothing works but the end of it.
	third := p.elsewhere()
	var due struct {
		SecondFactor bool     `json:"require_2fa"`
		Methods      []string `json:"methods"`
	}
	third.does(http.MethodPost, "/api/user/login", p.credentials(), &due)
	if !due.SecondFactor || strings.Join(due.Methods, " ") != "2fa passkey" {
		t.Errorf("the log-in says %+v", due)
	}
	third.isRefused(http.MethodGet, "/api/user/self", nil, http.StatusUnauthorized, "SECOND_FACTOR_REQUIRED")
	half := third.stolen()
	third.does(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": p.code()}, nil)
	if half.in() || !third.in() {
		t.Error("the secret of the half-open session is in force after the second factor, or the new one is not")
	}
	third.isRefused(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": p.codeOf(p.step)}, http.StatusForbidden, "VERIFICATION_FAILED")

	// The end of one session, of a log-out, of all.
	var list struct {
		Items []struct {
			ID, Agent string
			Current   bool
		}
	}
	p.does(http.MethodGet, "/api/user/self/sessions", nil, &list)
	if len(list.Items) != 3 {
		t.Errorf("the sessions are %+v", list.Items)
	}
	for _, s := range list.Items {
		if !strings.Contains(s.Agent, "ada") {
			t.Errorf("a session was opened by %q", s.Agent)
		}
	}
	leaves := third.stolen()
	third.does(http.MethodPost, "/api/user/logout", nil, nil)
	if leaves.in() {
		t.Error("a session lives on after a log-out")
	}
	again := p.stolen()
	p.does(http.MethodDelete, "/api/user/self/sessions?which=all", nil, nil)
	for name, who := range map[string]*person{"that which ended them": p, "its copy": again, "the other": other} {
		if who.in() {
			t.Errorf("after the end of all sessions, %s is in", name)
		}
	}
	if !p.calls(key) {
		t.Error("the key has ended with the sessions")
	}
}

func TestSessionsStampsAndCeremoniesGoOnThroughReloads(t *testing.T) {
	t.Parallel()
	g := peopleOf(t)
	reload := func() {
		t.Helper()
		if err := g.reload(); err != nil {
			t.Fatal(err)
		}
	}
	p := g.newPerson("grace")
	p.registers()
	reload()
	p.enrols()
	half := p.elsewhere()
	half.does(http.MethodPost, "/api/user/login", p.credentials(), nil)
	code := p.code()
	p.verifies(code)
	reload()
	p.isRefused(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": code}, http.StatusForbidden, "VERIFICATION_FAILED")
	p.makesPasskey(map[string]string{"name": "phone"}) // by the stamp from before
	options := p.tries(http.MethodPost, "/api/user/passkey/verify/begin", nil)
	login := p.elsewhere()
	entering := login.tries(http.MethodPost, "/api/user/passkey/login/begin", nil)
	reload()
	half.does(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": half.backupCode()}, nil)
	p.does(http.MethodPost, "/api/user/passkey/verify/finish", p.signs(options), nil)
	login.does(http.MethodPost, "/api/user/passkey/login/finish", login.signs(entering), nil)
	reload()
	p.checkVerified(p.tries(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}))
	if key := p.makesKey("after"); !p.calls(key) {
		t.Error("the key does not call")
	}
	for name, who := range map[string]*person{"first": p, "second": half, "third": login} {
		if !who.in() {
			t.Errorf("the %s session has ended", name)
		}
	}
}
