package caddymodule_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// console is a gate with people.
var console = gatetest.Config{Site: "modelgate_console"}

const goodPassword = "correct horse battery staple"

// login tries a password and returns the cookie that came, "" when none did.
func login(t *testing.T, g *gatetest.Gate, name, password string) (cookie string) {
	t.Helper()
	answer := g.Do(t, http.MethodPost, "/api/user/login", "Content-Type: application/json", fmt.Sprintf(`{"username":%q,"password":%q}`, name, password))
	crumb, _, _ := strings.Cut(answer.Header.Get("Set-Cookie"), ";")
	if crumb == "" {
		return ""
	}
	return "Cookie: " + crumb
}

func self(t *testing.T, g *gatetest.Gate, cookie string) int {
	t.Helper()
	return g.Do(t, http.MethodGet, "/api/user/self", cookie, "").Status
}

// post sends JSON by a session; it returns the data and the session's cookie
// after it.
func post(t *testing.T, g *gatetest.Gate, cookie, path, body string) (data map[string]any, renewed string) {
	t.Helper()
	answer := g.Do(t, http.MethodPost, path, cookie+"\nContent-Type: application/json", body)
	var e struct{ Data map[string]any }
	if err := json.Unmarshal([]byte(answer.Body), &e); err != nil || answer.Status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, answer.Status, answer.Body)
	}
	if crumb, _, _ := strings.Cut(answer.Header.Get("Set-Cookie"), ";"); crumb != "" {
		cookie = "Cookie: " + crumb
	}
	return e.Data, cookie
}

// authenticator is an app that makes codes. Its first is as old as a code may be;
// so it has three that are good at once, one after another, and a test waits only
// when the oldest would not be good for long.
type authenticator struct {
	seed string
	at   time.Time
}

// codeStep is for how long an authenticator shows a code. One is taken that is a
// step early or late.
const codeStep = 30 * time.Second

// newAuthenticator returns one whose first code is good for some seconds.
func newAuthenticator(seed string) *authenticator {
	const soon = 5 * time.Second
	return &authenticator{seed, time.Now().Add(soon - codeStep)}
}

// code is one that was not used before.
func (a *authenticator) code(t *testing.T) string {
	t.Helper()
	code, err := totp.GenerateCode(a.seed, a.at)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(a.at.Truncate(codeStep).Add(-codeStep)))
	a.at = a.at.Add(codeStep)
	return fmt.Sprintf(`{"code":%q}`, code)
}

// enrol gives a user an authenticator app.
func enrol(t *testing.T, g *gatetest.Gate, cookie string) (app *authenticator, renewed string) {
	t.Helper()
	data, cookie := post(t, g, cookie, "/api/user/2fa/setup", fmt.Sprintf(`{"password":%q}`, goodPassword))
	seed, _ := data["secret"].(string)
	app = newAuthenticator(seed)
	_, cookie = post(t, g, cookie, "/api/user/2fa/enable", app.code(t))
	return app, cookie
}

func TestAUserIsCreatedWithAPasswordFromAFileOrStandardInputAlone(t *testing.T) {
	g := gatetest.Start(t, console)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(goodPassword+" \r\nsecond line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := run(t, g, "", "user", "create", "ann", "--password-file", file); code != 0 || strings.Contains(stdout+stderr, goodPassword) {
		t.Errorf("ended with %d: %s%s", code, stdout, stderr)
	}
	if login(t, g, "ann", goodPassword+" ") == "" || login(t, g, "ann", goodPassword) != "" {
		t.Error("the password is not the line as it stands")
	}
	if code, _, stderr := run(t, g, goodPassword, "user", "create", "bob", "--password-stdin"); code != 0 || login(t, g, "bob", goodPassword) == "" {
		t.Errorf("ended with %d: %s", code, stderr)
	}
	for name, c := range map[string]struct {
		stdin string
		args  []string
		code  int
		says  string
	}{
		"a weak password":     {"short", []string{"--password-stdin"}, 4, "password"},
		"the name itself":     {"new-person", []string{"--password-stdin"}, 4, "password"},
		"no password":         {"", []string{"--password-stdin"}, 2, "empty"},
		"an empty line":       {"\n" + goodPassword, []string{"--password-stdin"}, 2, "empty"},
		"both":                {goodPassword, []string{"--password-stdin", "--password-file", file}, 2, "exclude each other"},
		"no such file":        {"", []string{"--password-file", file + "x"}, 2, "no such file"},
		"a file without name": {"", []string{"--password-file", ""}, 2, "--password-file"},
		"a password in argv":  {"", []string{"--password", goodPassword}, 2, "unknown flag"},
	} {
		code, _, stderr := run(t, g, c.stdin, append([]string{"user", "create", "new-person"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: ended with %d: %s", name, code, stderr)
		}
	}
	if code, _, _ := run(t, g, "", "user", "show", "new-person"); code != 3 {
		t.Error("a refused password left a user behind")
	}
	if g.Logged(goodPassword) {
		t.Error("a password stands in the log")
	}
}

func TestOperatorsTakeFactorsAwayResetPasswordsAndSignOut(t *testing.T) {
	g := gatetest.Start(t, console)
	run(t, g, goodPassword, "user", "create", "ann", "--password-stdin")
	cookie := login(t, g, "ann", goodPassword)
	_, cookie = enrol(t, g, cookie)
	if _, stdout, _ := run(t, g, "", "user", "list"); !strings.Contains(stdout, "FACTORS") || !strings.Contains(stdout, "totp+10") {
		t.Errorf("the list is\n%s", stdout)
	}
	if _, stdout, _ := run(t, g, "", "user", "show", "ann", "--json"); !strings.Contains(stdout, `"factors":{"totp":true,"backup_codes":10,"passkeys":0}`) {
		t.Errorf("the user is %s", stdout)
	}

	if code, _, stderr := run(t, g, "n\n", "user", "reset-2fa", "ann"); code != 4 || !strings.Contains(stderr, "not confirmed") {
		t.Errorf("without a yes it ended with %d: %s", code, stderr)
	}
	if code, stdout, stderr := run(t, g, "", "user", "reset-2fa", "ann", "--yes"); code != 0 || !strings.Contains(stdout, "no second factor now") {
		t.Errorf("ended with %d: %s%s", code, stdout, stderr)
	}
	if _, stdout, _ := run(t, g, "", "user", "list"); strings.Contains(stdout, "totp") {
		t.Errorf("the list is\n%s", stdout)
	}

	again := login(t, g, "ann", goodPassword)
	if self(t, g, again) != http.StatusOK {
		t.Error("a log-in without factors is not whole")
	}
	if code, stdout, _ := run(t, g, "", "user", "sign-out", "ann"); code != 0 || !strings.Contains(stdout, "signed out everywhere") {
		t.Errorf("ended with %d: %s", code, stdout)
	}
	for _, c := range []string{cookie, again} {
		if got := self(t, g, c); got != http.StatusUnauthorized {
			t.Errorf("a session that was signed out is answered %d", got)
		}
	}

	ended, stdout, _ := run(t, g, "", "user", "reset-password", "ann", "--json")
	var issued struct{ Code string }
	if err := json.Unmarshal([]byte(stdout), &issued); ended != 0 || err != nil || issued.Code == "" {
		t.Fatalf("ended with %d: %s", ended, stdout)
	}
	const next = "a password that is remembered"
	post(t, g, "", "/api/user/password/reset", fmt.Sprintf(`{"code":%q,"password":%q}`, issued.Code, next))
	if login(t, g, "ann", next) == "" || login(t, g, "ann", goodPassword) != "" {
		t.Error("the new password is not the one")
	}
	if g.Logged(issued.Code) {
		t.Error("the code stands in the log")
	}
	for _, verb := range []string{"reset-2fa", "sign-out", "reset-password", "unblock"} {
		if code, _, _ := run(t, g, "", "user", verb, "nobody", "--yes"); code != 3 {
			t.Errorf("%s of nobody ended with %d", verb, code)
		}
	}
	for _, action := range []string{"user.reset_2fa", "user.sign_out", "totp.enable", "login"} {
		g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("logger") == "modelgate.audit" && l.Text("msg") == action })
	}
}

func TestOperatorsLetAUserTryAgain(t *testing.T) {
	g := gatetest.Start(t, console)
	run(t, g, goodPassword, "user", "create", "ann", "--password-stdin")
	for range 10 {
		login(t, g, "ann", "a wrong password")
	}
	if login(t, g, "ann", goodPassword) != "" {
		t.Fatal("a name may be tried without end")
	}
	if code, stdout, stderr := run(t, g, "", "user", "unblock", "ann"); code != 0 || !strings.Contains(stdout, "may try again") {
		t.Errorf("ended with %d: %s%s", code, stdout, stderr)
	}
	if login(t, g, "ann", goodPassword) == "" {
		t.Error("the user may not try again")
	}
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("logger") == "modelgate.audit" && l.Text("msg") == "user.unblock" && l.Text("actor") == "operator"
	})
}

func TestAUserWhoseNameIsAFlagIsNotMade(t *testing.T) {
	g := gatetest.Start(t, console)
	for _, name := range []string{"-ann", "..", "."} {
		code, _, stderr := gatetest.Caddy(t, goodPassword, "modelgate", "user", "create", "--password-stdin", "--address", g.AdminAddress, "--", name)
		if code != 4 || !strings.Contains(stderr, "does not begin with -") {
			t.Errorf("%q ended with %d: %s", name, code, stderr)
		}
	}
}
