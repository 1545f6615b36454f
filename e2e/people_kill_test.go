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

// kill9 kills the process and starts the next one.
func (g *gateway) kill9() {
	g.t.Helper()
	g.process.kill()
	g.process.checkLog()
	if found := search(g.process.log.String(), g.secrets); found != "" {
		g.t.Errorf("the log shows the credential %s", found)
	}
	g.start()
}

func TestNothingThatAPersonWasToldIsForgottenByAKill(t *testing.T) {
	t.Parallel()
	g := peopleOf(t)
	p := g.newPerson("ada")
	p.registers()
	left := p.elsewhere()
	left.logsIn()
	gone := left.stolen()
	left.does(http.MethodPost, "/api/user/logout", nil, nil)
	g.kill9()
	if !p.in() || gone.in() {
		t.Error("a session has ended by the kill, or an ended one goes on")
	}

	// A code that was used, whatever for, is used.
	p.enrols()
	used := p.codeOf(p.step)
	g.kill9()
	verify := func(code string) map[string]string { return map[string]string{"method": "2fa", "code": code} }
	p.isRefused(http.MethodPost, "/api/verify", verify(used), http.StatusForbidden, "VERIFICATION_FAILED")
	used = p.code()
	p.verifies(used)
	g.kill9()
	p.isRefused(http.MethodPost, "/api/verify", verify(used), http.StatusForbidden, "VERIFICATION_FAILED")
	key := p.makesKey("by the stamp from before the kill")
	options := p.tries(http.MethodPost, "/api/user/passkey/register/begin", nil)
	g.kill9()
	if !p.calls(key) {
		t.Error("the key is forgotten")
	}
	p.answersRegistration(options)
	entering := p.elsewhere()
	begun := entering.tries(http.MethodPost, "/api/user/passkey/login/begin", nil)
	p.usesPasskey("verify")
	g.kill9()

	// A passkey, a log-in by it, and the one-time mark that it left.
	signed := entering.signs(begun)
	entering.does(http.MethodPost, "/api/user/passkey/login/finish", signed, nil)
	p.checkVerified(p.tries(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}))
	g.kill9()
	p.isRefused(http.MethodPost, "/api/verify", map[string]string{"method": "passkey"}, http.StatusBadRequest, "PASSKEY_NOT_COMPLETED")
	entering.isRefused(http.MethodPost, "/api/user/passkey/login/finish", signed, http.StatusBadRequest, "PASSKEY_NOT_COMPLETED")
	if !p.in() || !entering.in() {
		t.Error("a session has ended by the kill")
	}

	// Five wrong codes in a row, of which the used one was the first: the right one
	// is refused, whoever asks and whatever happens.
	for range 4 {
		p.isRefused(http.MethodPost, "/api/verify", verify(p.wrongCode()), http.StatusForbidden, "VERIFICATION_FAILED")
	}
	g.kill9()
	right := p.code()
	p.isRefused(http.MethodPost, "/api/verify", verify(right), http.StatusTooManyRequests, "TOO_MANY_ATTEMPTS")
	other := p.elsewhere()
	other.does(http.MethodPost, "/api/user/login", p.credentials(), nil)
	other.isRefused(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": right}, http.StatusTooManyRequests, "TOO_MANY_ATTEMPTS")

	// The pause is of the app alone. A backup code works, once.
	backup := p.backupCode()
	other.does(http.MethodPost, "/api/user/login/2fa", map[string]string{"code": backup}, nil)
	g.kill9()
	other.isRefused(http.MethodPost, "/api/verify", verify(backup), http.StatusForbidden, "VERIFICATION_FAILED")
	if f := other.factors(); !f.TOTP || f.BackupCodes != 9 || f.Passkeys != 1 {
		t.Errorf("the factors are %+v", f)
	}
	other.does(http.MethodDelete, "/api/user/self/sessions?which=all", nil, nil)
	g.kill9()
	if p.in() || entering.in() || other.in() {
		t.Error("a session goes on that was ended before the kill")
	}
}

// roll is what people were told of their sessions before the kills.
type roll struct {
	mu   sync.Mutex
	in   map[string]*person // by the secret of the session
	out  map[string]*person
	made int
}

func TestSessionsThatWereAcknowledgedOutliveKillsAtAnyMoment(t *testing.T) {
	t.Parallel()
	g := peopleOf(t)
	told := &roll{in: map[string]*person{}, out: map[string]*person{}}
	for round := range *killRounds / 3 {
		victim, after := g.process, int64(1+rand.N(60))
		var acknowledged atomic.Int64
		inParallel(4, 4, func(worker int) {
			p := g.newPerson(fmt.Sprintf("person-%d-%d", round, worker))
			if _, err := p.send(http.MethodPost, "/api/user/register", p.credentials()); err != nil {
				return // the process is gone
			}
			for n := 0; told.write(p.elsewhere(), n%3); n++ {
				if acknowledged.Add(1) == after {
					victim.kill()
				}
			}
		})
		receive(t, victim.exited, "the end of the process")
		g.start()
		t.Logf("round %d: killed after %d of %d acknowledged log-ins", round, acknowledged.Load(), told.made)
		for secret, p := range told.in {
			if !p.in() {
				t.Errorf("the session %.4s… of %s is lost", secret, p.name)
			}
		}
		for secret, p := range told.out {
			if p.in() {
				t.Errorf("the session %.4s… of %s has come back", secret, p.name)
			}
		}
	}
}

// write logs somebody in, and may end the session again, and notes what was
// acknowledged. It returns false when an answer stayed out: what then holds,
// nobody was told.
func (r *roll) write(p *person, then int) bool {
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
		// The program forgets the cookie; the thief of it does not.
		copied := p.stolen()
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

func TestASealedStoreIsRestoredWithItsKeyFileAlone(t *testing.T) {
	t.Parallel()
	g := peopleOf(t)
	p := g.newPerson("ada")
	p.registers()
	p.enrols()
	file := g.Dir + "/backup"
	if c := g.command("modelgate", "backup", file, "--address", g.Admin); c.code(patience) != 0 {
		t.Fatalf("the backup failed:\n%s", c.log.tail(10))
	}
	stranger := peopleOf(t) // has a key file of its own
	own := stranger.newPerson("eve")
	own.registers()
	own.enrols()

	restored := func() *gateway {
		copied := newGateway(t, g.Site, g.backends...)
		copied.operatorKey = g.operatorKey
		if c := copied.command("modelgate", "restore", file, copied.Store); c.code(patience) != 0 {
			t.Fatalf("the backup was not restored:\n%s", c.log.tail(10))
		}
		return copied
	}
	for name, c := range map[string]struct {
		key  string // where a key file is taken from; empty: there is none
		says string
	}{
		"without":      {"", "is missing"},
		"with another": {stranger.Store + ".key", "sealed by another master key"},
	} {
		copied := restored()
		copied.takeKey(c.key)
		copied.writeConfig()
		copied.process = copied.command("run", "--config", copied.file(), "--adapter", "caddyfile")
		if code := copied.process.code(patience); code == 0 || !strings.Contains(copied.process.log.String(), c.says) {
			t.Errorf("%s key file, the start ends with %d:\n%s", name, code, copied.process.log.tail(5))
		}
	}

	copied := restored()
	copied.takeKey(g.Store + ".key")
	copied.start()
	q := &person{p.belongings, copied, p.jar, p.http}
	q.page.Origin = copied.Origin()
	if !q.in() {
		t.Error("the session was not restored")
	}
	used := q.codeOf(q.step)
	q.isRefused(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": used}, http.StatusForbidden, "VERIFICATION_FAILED")
	q.verifies(q.code())
	other := q.elsewhere()
	other.logsIn() // by a backup code, whose hash is sealed too
	if key := q.makesKey("restored"); !q.calls(key) {
		t.Error("the key does not call")
	}
}

func TestKillsWhileTheMasterKeyIsChangedLoseNoSecret(t *testing.T) {
	t.Parallel()
	g := peopleOf(t)
	crowd := make([]*person, 8) // so that there is something to seal anew
	for i := range crowd {
		crowd[i] = g.newPerson(fmt.Sprintf("person-%d", i))
		crowd[i].registers()
		crowd[i].enrols()
	}
	for round := range *killRounds / 3 {
		victim, after := g.process, int64(1+rand.N(8))
		var acknowledged atomic.Int64
		inParallel(2, 2, func(int) {
			for g.tryPost("/modelgate/secret/rotate", nil, nil) == nil {
				if acknowledged.Add(1) == after {
					victim.kill() // in the middle of what the other has asked for
				}
			}
		})
		receive(t, victim.exited, "the end of the process")
		g.start()
		t.Logf("round %d: killed after %d rotations; %d keys are left", round, acknowledged.Load(), len(g.keyLines()))
		crowd[round%len(crowd)].elsewhere().logsIn() // by a backup code, of which each has ten
	}
	g.post("/modelgate/secret/rotate", nil, nil)
	if left := len(g.keyLines()); left != 1 {
		t.Errorf("after a rotation that was let run to its end, %d keys are left", left)
	}
	for _, p := range crowd {
		p.verifies(p.code())
	}
}
