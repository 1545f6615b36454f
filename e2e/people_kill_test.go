package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// kill9 kills the process and starts another one.
func (g *gateway) kill9() {
	g.t.Helper()
	g.process.kill()
	g.process.checkLog()
	if found := search(g.process.log.String(), g.secrets); found != "" {
		g.t.Errorf("the log shows the credential %s", found)
	}
	g.start()
}

func TestAcknowledgedChangesOfAUserSurviveAKill(t *testing.T) {
	t.Parallel()
	g := newConsoleGateway(t)
	p := g.newPerson("ada")
	p.register()
	left := p.newBrowser()
	left.logIn()
	gone := left.withStolenCookies()
	left.mustSucceed(http.MethodPost, "/api/user/logout", nil, nil)
	g.kill9()
	if !p.loggedIn() || gone.loggedIn() {
		t.Error("the kill ended a session, or an ended session is valid")
	}

	// A used code stays used, whatever it was used for.
	p.enrolTOTP()
	used := p.codeOf(p.step)
	g.kill9()
	verify := func(code string) map[string]string { return map[string]string{"method": "2fa", "code": code} }
	p.mustFail(http.MethodPost, "/api/verify", verify(used), http.StatusForbidden, "VERIFICATION_FAILED")
	used = p.code()
	p.verifyCode(used)
	g.kill9()
	p.mustFail(http.MethodPost, "/api/verify", verify(used), http.StatusForbidden, "VERIFICATION_FAILED")
	key := p.createKey("with the step-up before the kill")
	options := p.mustSend(http.MethodPost, "/api/user/passkey/register/begin", nil)
	g.kill9()
	if !p.canCall(key) {
		t.Error("the key is lost")
	}
	p.finishRegistration(options)
	entering := p.newBrowser()
	begun := entering.mustSend(http.MethodPost, "/api/user/passkey/login/begin", nil)
	p.usePasskey("verify")
	g.kill9()

	// A passkey, a log-in with it, and its one-time assertion.
	signed := entering.signAssertion(begun)
	entering.mustSucceed(http.MethodPost, "/api/user/passkey/login/finish", signed, nil)
	p.checkVerified(p.mustSend(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}))
	g.kill9()
	p.mustFail(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}, http.StatusBadRequest, "PASSKEY_NOT_COMPLETED")
	entering.mustFail(http.MethodPost, "/api/user/passkey/login/finish", signed, http.StatusBadRequest, "PASSKEY_NOT_COMPLETED")
	if !p.loggedIn() || !entering.loggedIn() {
		t.Error("the kill ended a session")
	}

	// After five wrong codes in a row, of which the used one was the first, the
	// right one is refused everywhere.
	for range 4 {
		p.mustFail(http.MethodPost, "/api/verify", verify(p.wrongCode()), http.StatusForbidden, "VERIFICATION_FAILED")
	}
	g.kill9()
	right := p.code()
	p.mustFail(http.MethodPost, "/api/verify", verify(right), http.StatusTooManyRequests, "TOO_MANY_ATTEMPTS")
	other := p.newBrowser()
	other.mustSucceed(http.MethodPost, "/api/user/login", p.credentials(), nil)
	other.mustFail(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": right}, http.StatusTooManyRequests, "TOO_MANY_ATTEMPTS")

	// Only codes of the app are blocked. A backup code works, once.
	backup := p.backupCode()
	other.mustSucceed(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": backup}, nil)
	g.kill9()
	other.mustFail(http.MethodPost, "/api/verify", verify(backup), http.StatusForbidden, "VERIFICATION_FAILED")
	if f := other.factors(); !f.TOTP || f.BackupCodes != 9 || f.Passkeys != 1 {
		t.Errorf("the factors are %+v", f)
	}
	other.mustSucceed(http.MethodDelete, "/api/user/self/sessions?which=all", nil, nil)
	g.kill9()
	if p.loggedIn() || entering.loggedIn() || other.loggedIn() {
		t.Error("a session that was ended before the kill is valid")
	}
}

// sessionRecord is what was acknowledged about sessions before the kills.
type sessionRecord struct {
	mu   sync.Mutex
	in   map[string]*person // by session secret
	out  map[string]*person
	made int
}

func TestAcknowledgedSessionsSurviveKills(t *testing.T) {
	t.Parallel()
	g := newConsoleGateway(t)
	reported := &sessionRecord{in: map[string]*person{}, out: map[string]*person{}}
	for round := range *killRounds / 3 {
		victim, after := g.process, int64(1+rand.N(60))
		var acknowledged atomic.Int64
		inParallel(4, 4, func(worker int) {
			p := g.newPerson(fmt.Sprintf("person-%d-%d", round, worker))
			if _, err := p.send(http.MethodPost, "/api/user/register", p.credentials()); err != nil {
				return // the process is gone
			}
			for n := 0; reported.write(p.newBrowser(), n%3); n++ {
				if acknowledged.Add(1) == after {
					victim.kill()
				}
			}
		})
		receive(t, victim.exited, "the end of the process")
		g.start()
		t.Logf("round %d: killed after %d of %d acknowledged log-ins", round, acknowledged.Load(), reported.made)
		for secret, p := range reported.in {
			if !p.loggedIn() {
				t.Errorf("the session %.4s… of %s is lost", secret, p.name)
			}
		}
		for secret, p := range reported.out {
			if p.loggedIn() {
				t.Errorf("the session %.4s… of %s is valid again", secret, p.name)
			}
		}
	}
}

// write logs a user in, may end the session again, and records what was
// acknowledged. It returns false if an answer did not arrive: then either state
// is allowed.
func (r *sessionRecord) write(p *person, then int) bool {
	a, err := p.send(http.MethodPost, "/api/user/login", p.credentials())
	if err != nil {
		return false
	}
	if !a.Success {
		p.g.t.Errorf("a log-in of %s: %d %s", p.name, a.Status, a.Text)
		return false
	}
	secret := p.session()
	if then == 0 {
		// The browser deletes the cookie; the thief does not.
		copied := p.withStolenCookies()
		if a, err := p.send(http.MethodPost, "/api/user/logout", nil); err != nil || !a.Success {
			if err == nil {
				p.g.t.Errorf("a log-out of %s: %d %s", p.name, a.Status, a.Text)
			}
			return false
		}
		p = copied
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	if then == 0 {
		r.out[secret] = p
	} else {
		r.in[secret] = p
	}
	return true
}

func TestASealedStoreIsRestoredOnlyWithItsKeyFile(t *testing.T) {
	t.Parallel()
	g := newConsoleGateway(t)
	p := g.newPerson("ada")
	p.register()
	p.enrolTOTP()
	file := g.Dir + "/backup"
	if c := g.command("modelgate", "backup", file, "--address", g.Admin); c.code(waitLimit) != 0 {
		t.Fatalf("the backup failed:\n%s", c.log.tail(10))
	}
	otherGateway := newConsoleGateway(t) // has its own key file
	own := otherGateway.newPerson("eve")
	own.register()
	own.enrolTOTP()

	restored := func() *gateway {
		copied := newGateway(t, g.Site, g.backends...)
		copied.operatorKey = g.operatorKey
		if c := copied.command("modelgate", "restore", file, copied.Store); c.code(waitLimit) != 0 {
			t.Fatalf("the backup was not restored:\n%s", c.log.tail(10))
		}
		return copied
	}
	for name, c := range map[string]struct {
		key  string // source of the key file; empty: none
		says string
	}{
		"without":      {"", ".key: missing"},
		"with another": {otherGateway.Store + ".key", "sealed with another master key"},
	} {
		copied := restored()
		copied.copyKeyFile(c.key)
		copied.writeConfig()
		copied.process = copied.command("run", "--config", copied.file(), "--adapter", "caddyfile")
		if code := copied.process.code(waitLimit); code == 0 || !strings.Contains(copied.process.log.String(), c.says) {
			t.Errorf("%s key file, the start: exit code %d:\n%s", name, code, copied.process.log.tail(5))
		}
	}

	copied := restored()
	copied.copyKeyFile(g.Store + ".key")
	copied.start()
	q := &person{p.personCredentials, copied, p.jar, p.http}
	q.page.Origin = copied.Origin()
	if !q.loggedIn() {
		t.Error("the session was not restored")
	}
	used := q.codeOf(q.step)
	q.mustFail(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": used}, http.StatusForbidden, "VERIFICATION_FAILED")
	q.verifyCode(q.code())
	other := q.newBrowser()
	other.logIn() // with a backup code, whose hash is sealed too
	if key := q.createKey("restored"); !q.canCall(key) {
		t.Error("the key is refused")
	}
}

func TestKillsDuringKeyRotationLoseNoSecret(t *testing.T) {
	t.Parallel()
	g := newConsoleGateway(t)
	people := make([]*person, 8) // data that must be sealed again
	for i := range people {
		people[i] = g.newPerson(fmt.Sprintf("person-%d", i))
		people[i].register()
		people[i].enrolTOTP()
	}
	for round := range *killRounds / 3 {
		victim, after := g.process, int64(1+rand.N(8))
		var acknowledged atomic.Int64
		inParallel(2, 2, func(int) {
			for g.tryPost("/modelgate/secret/rotate", nil, nil) == nil {
				if acknowledged.Add(1) == after {
					victim.kill() // during the other's request
				}
			}
		})
		receive(t, victim.exited, "the end of the process")
		g.start()
		t.Logf("round %d: killed after %d rotations; %d keys are left", round, acknowledged.Load(), len(g.keyLines()))
		people[round%len(people)].newBrowser().logIn() // with a backup code; each user has ten
	}
	g.post("/modelgate/secret/rotate", nil, nil)
	if left := len(g.keyLines()); left != 1 {
		t.Errorf("after a complete rotation, %d keys are left", left)
	}
	for _, p := range people {
		p.verifyCode(p.code())
	}
}
