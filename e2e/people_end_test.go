package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// tokenClient is a client of the same person that has their access token and no
// cookies.
type tokenClient struct {
	*person
	token string
}

func (p *person) createToken() tokenClient {
	p.g.t.Helper()
	var made struct {
		Token string `json:"access_token"`
	}
	p.mustSucceed(http.MethodPost, "/api/user/token", nil, &made)
	p.keepSecret(made.Token)
	return tokenClient{p.newBrowser(), made.Token}
}

// sendWithToken is mustSend with the access token.
func (p tokenClient) sendWithToken(method, path string, in any) consoleAnswer {
	p.g.t.Helper()
	return p.mustSend(method, path, in, "Authorization", "Bearer "+p.token)
}

func (p tokenClient) loggedIn() bool {
	p.g.t.Helper()
	a := p.sendWithToken(http.MethodGet, "/api/user/self", nil)
	if a.Status != http.StatusOK && (a.Status != http.StatusUnauthorized || a.Code != "NOT_LOGGED_IN") {
		p.g.t.Errorf("the token of %s: %d %s", p.name, a.Status, a.Text)
	}
	return a.Status == http.StatusOK
}

// TestRevokedCredentialsFailFromTheNextRequest tries everything that
// ends credentials, by the person and by the operator at the command line.
func TestRevokedCredentialsFailFromTheNextRequest(t *testing.T) {
	t.Parallel()
	g := newConsoleGateway(t)
	operator := func(args ...string) {
		t.Helper()
		if c := g.command(append(append([]string{"modelgate", "user"}, args...), "--yes", "--address", g.Admin)...); c.code(waitLimit) != 0 {
			t.Fatalf("%q failed:\n%s", args, c.log.tail(10))
		}
	}
	p := g.newPerson("ada")
	p.register()
	key := p.createKey("laptop")
	var last []interface{ loggedIn() bool } // from the previous round
	type validity struct{ here, there, token, key bool }
	for _, c := range []struct {
		what string
		do   func(here, there *person)
		want validity // what is still valid
	}{
		{"a change of the password", func(here, _ *person) {
			was := p.password
			p.password += ", and another"
			p.keepSecret(p.password)
			here.mustSucceed(http.MethodPost, "/api/user/password", map[string]string{"password": was, "new_password": p.password}, nil)
		}, validity{here: true, key: true}},
		{"the end of one session", func(here, there *person) {
			var list struct {
				Items []struct {
					ID      string
					Current bool
				}
			}
			there.mustSucceed(http.MethodGet, "/api/user/self/sessions", nil, &list)
			for _, s := range list.Items {
				if s.Current {
					here.mustSucceed(http.MethodDelete, "/api/user/self/sessions/"+s.ID, nil, nil)
				}
			}
		}, validity{here: true, token: true, key: true}},
		{"the end of the others", func(here, _ *person) {
			here.mustSucceed(http.MethodDelete, "/api/user/self/sessions?which=others", nil, nil)
		}, validity{here: true, token: true, key: true}},
		{"the end of the token", func(here, _ *person) { here.mustSucceed(http.MethodDelete, "/api/user/token", nil, nil) }, validity{here: true, there: true, key: true}},
		{"a log-out", func(here, _ *person) { here.mustSucceed(http.MethodPost, "/api/user/logout", nil, nil) }, validity{there: true, token: true, key: true}},
		{"a sign-out by the operator", func(*person, *person) { operator("sign-out", "ada") }, validity{token: true, key: true}},
		{"disabling", func(*person, *person) { operator("disable", "ada") }, validity{}},
	} {
		here, there := p.newBrowser(), p.newBrowser()
		here.logIn()
		there.logIn()
		token := here.createToken()
		withStolenCookies := here.withStolenCookies()
		c.do(here, there)
		if here.session() == "" { // the browser has deleted the cookie; the thief has not
			here = withStolenCookies
		}
		if got := (validity{here.loggedIn(), there.loggedIn(), token.loggedIn(), p.canCall(key)}); got != c.want {
			t.Errorf("after %s, the valid credentials are %+v, want %+v", c.what, got, c.want)
		}
		if withStolenCookies.session() != here.session() && withStolenCookies.loggedIn() {
			t.Errorf("after %s the old secret of the session is valid", c.what)
		}
		last = []interface{ loggedIn() bool }{here, there, token}
	}
	a := p.newBrowser().mustSend(http.MethodPost, "/api/user/login", p.credentials())
	if a.Code != "USER_DISABLED" {
		t.Errorf("a disabled user with the right password gets %d %s", a.Status, a.Text)
	}
	operator("enable", "ada")
	for i, credential := range last[:2] {
		if credential.loggedIn() {
			t.Errorf("session %d is valid again after its user was enabled", i)
		}
	}
}

func TestACodeIsAcceptedOnceUnderConcurrency(t *testing.T) {
	t.Parallel()
	g := newConsoleGateway(t)
	p := g.newPerson("ada")
	p.register()
	token := p.createToken()
	p.enrolTOTP()
	atOnce := func(n int, code string) map[string]int64 {
		var verified, wrong, paused, other atomic.Int64
		inParallel(n, n, func(int) {
			a, err := token.newBrowser().send(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": code}, "Authorization", "Bearer "+token.token)
			switch {
			case err == nil && a.Success:
				verified.Add(1)
			case err == nil && a.Status == http.StatusForbidden && a.Code == "VERIFICATION_FAILED":
				wrong.Add(1)
			case err == nil && a.Status == http.StatusTooManyRequests && a.Code == "TOO_MANY_ATTEMPTS":
				paused.Add(1)
			default:
				other.Add(1)
				t.Errorf("got %d %s (%v)", a.Status, a.Text, err)
			}
		})
		return map[string]int64{"verified": verified.Load(), "wrong": wrong.Load(), "paused": paused.Load()}
	}
	// The replays count as failures, so codes may be blocked now.
	if got := atOnce(20, p.code()); got["verified"] != 1 {
		t.Errorf("20 requests with a right code: %v", got)
	}
	p.mustFail(http.MethodPost, "/api/token/", map[string]string{"name": "laptop"}, http.StatusForbidden, "VERIFICATION_REQUIRED") // the step-up belongs to the token
	if a := token.sendWithToken(http.MethodPost, "/api/token/", map[string]string{"name": "laptop"}); !a.Success {
		t.Errorf("after a step-up the token creates no key: %d %s", a.Status, a.Text)
	}

	q := g.newPerson("grace")
	q.register()
	token = q.createToken()
	q.enrolTOTP()
	if got := atOnce(200, q.wrongCode()); got["verified"] != 0 || got["wrong"] != 5 || got["paused"] != 195 {
		t.Errorf("200 requests with a wrong code: %v", got)
	}
	right := q.code()
	if got := atOnce(5, right); got["paused"] != 5 {
		t.Errorf("the right code after them: %v", got)
	}
	g.kill9()
	if got := atOnce(5, right); got["paused"] != 5 {
		t.Errorf("the right code after a kill: %v", got)
	}
	if got := atOnce(20, q.backupCode()); got["verified"] != 1 {
		t.Errorf("20 requests with a backup code: %v", got)
	}
}
