package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// console is a configuration with the console.
var console = gatetest.Config{Site: "modelgate_console"}

func self(t *testing.T, g *gatetest.Gate, cookie string) int {
	t.Helper()
	return g.Do(t, http.MethodGet, "/api/user/self", cookie, "").Status
}

func TestAPasswordIsReadOnlyFromAFileOrStandardInput(t *testing.T) {
	g := gatetest.Start(t, console)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(gatetest.Password+" \r\nsecond line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := g.Command(t, "", "user", "create", "ann", "--password-file", file); code != 0 || strings.Contains(stdout+stderr, gatetest.Password) {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if g.Login(t, "ann", gatetest.Password+" ") == "" || g.Login(t, "ann", gatetest.Password) != "" {
		t.Error("the password is not exactly the first line of the file")
	}
	if code, _, stderr := g.Command(t, gatetest.Password, "user", "create", "bob", "--password-stdin"); code != 0 || g.Login(t, "bob", gatetest.Password) == "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	for name, c := range map[string]struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		"a weak password":     {"short", []string{"--password-stdin"}, 4, "password"},
		"the name itself":     {"new-person", []string{"--password-stdin"}, 4, "password"},
		"no password":         {"", []string{"--password-stdin"}, 2, "empty"},
		"an empty line":       {"\n" + gatetest.Password, []string{"--password-stdin"}, 2, "empty"},
		"both":                {gatetest.Password, []string{"--password-stdin", "--password-file", file}, 2, "exclude each other"},
		"no such file":        {"", []string{"--password-file", file + "x"}, 2, "no such file"},
		"a file without name": {"", []string{"--password-file", ""}, 2, "--password-file"},
		"a password in argv":  {"", []string{"--password", gatetest.Password}, 2, "unknown flag"},
	} {
		code, _, stderr := g.Command(t, c.stdin, append([]string{"user", "create", "new-person"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d: %s", name, code, stderr)
		}
	}
	if code, _, _ := g.Command(t, "", "user", "show", "new-person"); code != 3 {
		t.Error("a refused password left a user behind")
	}
	if g.Logged(gatetest.Password) {
		t.Error("a password is in the log")
	}
}

func TestCommandsNameThePageOfTheConsoleAndTheRole(t *testing.T) {
	g := gatetest.Start(t, console)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	if _, stdout, _ := g.Command(t, "", "user", "reset-password", "ann"); !strings.Contains(stdout, "on the page /console/reset,") || !strings.Contains(stdout, "POST /api/user/password/reset") {
		t.Errorf("the command prints %s", stdout)
	}
	if rows := table(t, g, "user", "role", "ann", "support"); !strings.HasSuffix(rows[0], "| ROLE | STATE") || !strings.HasSuffix(rows[1], "| support | active") {
		t.Errorf("the command prints %q", rows)
	}
}

func TestCommandsResetFactorsAndPasswordsAndSignOut(t *testing.T) {
	g := gatetest.Start(t, console)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	cookie := g.Login(t, "ann", gatetest.Password)
	_, cookie = g.Enrol(t, cookie)
	if _, stdout, _ := g.Command(t, "", "user", "list"); !strings.Contains(stdout, "FACTORS") || !strings.Contains(stdout, "totp+10") {
		t.Errorf("the list is\n%s", stdout)
	}
	if _, stdout, _ := g.Command(t, "", "user", "show", "ann", "--json"); !strings.Contains(stdout, `"factors":{"totp":true,"backup_codes":10,"passkeys":0}`) {
		t.Errorf("the user is %s", stdout)
	}

	if code, _, stderr := g.Command(t, "n\n", "user", "reset-2fa", "ann"); code != 4 || !strings.Contains(stderr, "not confirmed") {
		t.Errorf("without --yes: exit code %d: %s", code, stderr)
	}
	if code, stdout, stderr := g.Command(t, "", "user", "reset-2fa", "ann", "--yes"); code != 0 || !strings.Contains(stdout, "now has no second factor") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if _, stdout, _ := g.Command(t, "", "user", "list"); strings.Contains(stdout, "totp") {
		t.Errorf("the list is\n%s", stdout)
	}

	again := g.Login(t, "ann", gatetest.Password)
	if self(t, g, again) != http.StatusOK {
		t.Error("a log-in without factors is not complete")
	}
	if code, stdout, _ := g.Command(t, "", "user", "sign-out", "ann"); code != 0 || !strings.Contains(stdout, "signed out everywhere") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	for _, c := range []string{cookie, again} {
		if got := self(t, g, c); got != http.StatusUnauthorized {
			t.Errorf("a session after the sign-out gets %d", got)
		}
	}

	ended, stdout, _ := g.Command(t, "", "user", "reset-password", "ann", "--json")
	var issued struct{ Code string }
	if err := json.Unmarshal([]byte(stdout), &issued); ended != 0 || err != nil || issued.Code == "" {
		t.Fatalf("exit code %d: %s", ended, stdout)
	}
	const next = "a password that is remembered"
	g.Post(t, "", "/api/user/password/reset", fmt.Sprintf(`{"code":%q,"password":%q}`, issued.Code, next))
	if g.Login(t, "ann", next) == "" || g.Login(t, "ann", gatetest.Password) != "" {
		t.Error("the new password did not replace the old one")
	}
	if g.Logged(issued.Code) {
		t.Error("the code is in the log")
	}
	for _, verb := range []string{"reset-2fa", "sign-out", "reset-password", "unblock"} {
		if code, _, _ := g.Command(t, "", "user", verb, "nobody", "--yes"); code != 3 {
			t.Errorf("%s of an unknown user: exit code %d", verb, code)
		}
	}
	for _, action := range []string{"user.reset_2fa", "user.sign_out", "totp.enable", "login"} {
		g.WaitLine(t, func(l gatetest.Line) bool { return l.Text("logger") == "modelgate.audit" && l.Text("msg") == action })
	}
}

func TestTheActivityOfAUserSaysWhoDidWhatWhyAndFromWhere(t *testing.T) {
	g := gatetest.Start(t, console)
	for _, name := range []string{"ann", "root"} {
		g.Command(t, gatetest.Password, "user", "create", name, "--password-stdin")
	}
	g.Command(t, "", "wallet", "credit", "ann", "5.00", "--reason", "a gift")
	g.Command(t, "", "user", "role", "root", "admin")
	app, cookie := g.Enrol(t, g.Login(t, "root", gatetest.Password))
	_, cookie = g.Post(t, cookie, "/api/verify", strings.Replace(app.Code(t), "{", `{"method":"2fa",`, 1))
	g.Post(t, cookie, "/api/admin/users/ann/limits", `{"streams":2,"reason":"case 4711"}`)

	code, stdout, stderr := g.Command(t, "", "user", "activity", "ann")
	lines := strings.Split(stdout, "\n")
	if code != 0 || len(lines) < 4 {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	for i, words := range [][]string{
		{"TIME", "ACTOR", "REASON", "ADDRESS"},
		{"usr_", "(root)", "user.limit", "none -> streams 2", "case 4711", "127.0.0.1", "req_"},
		{"operator", "wallet.credit", "0.00 -> 5.00", "a gift", "req_"},
	} {
		for _, word := range words {
			if !strings.Contains(lines[i], word) {
				t.Errorf("line %d has no %q: %s", i, word, lines[i])
			}
		}
	}
	_, one, _ := g.Command(t, "", "user", "activity", "ann", "--limit", "1")
	_, after, found := strings.Cut(one, "There are more: --after ")
	if !found {
		t.Fatalf("there is no way to continue: %s", one)
	}
	if _, rest, _ := g.Command(t, "", "user", "activity", "ann", "--after", strings.TrimSpace(after)); strings.Contains(rest, "user.limit") || !strings.Contains(rest, "wallet.credit") {
		t.Errorf("after the first line: %s", rest)
	}
}

func TestUnblockAllowsLogInsAgain(t *testing.T) {
	g := gatetest.Start(t, console)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	for range 10 {
		g.Login(t, "ann", "a wrong password")
	}
	if g.Login(t, "ann", gatetest.Password) != "" {
		t.Fatal("log-ins are not locked after ten wrong passwords")
	}
	if code, stdout, stderr := g.Command(t, "", "user", "unblock", "ann"); code != 0 || !strings.Contains(stdout, "can try again") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if g.Login(t, "ann", gatetest.Password) == "" {
		t.Error("the user still cannot log in")
	}
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("logger") == "modelgate.audit" && l.Text("msg") == "user.unblock" && l.Text("actor") == "operator"
	})
}

func TestAUserNameCannotLookLikeAFlag(t *testing.T) {
	g := gatetest.Start(t, console)
	for _, name := range []string{"-ann", "..", "."} {
		code, _, stderr := gatetest.Caddy(t, gatetest.Password, "modelgate", "user", "create", "--password-stdin", "--address", g.AdminAddress, "--", name)
		if code != 4 || !strings.Contains(stderr, "must not begin with -") {
			t.Errorf("%q: exit code %d: %s", name, code, stderr)
		}
	}
}

func TestUserShowPrintsRestrictionsAndLocks(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "price costly {\ninput 1\noutput 10\ncontext 200000\nmax_output 1000\n}", Site: gatetest.Proxied + "modelgate_console\n"})
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	key := g.NewKey(t, map[string]any{"user": "ann"})
	g.Credit(t, "ann", "0.001")
	shown := func() string {
		_, stdout, _ := g.Command(t, "", "user", "show", "ann")
		return stdout
	}
	if got := shown(); strings.Contains(got, "restricted") || strings.Contains(got, "locked") {
		t.Errorf("a user without restrictions is shown as\n%s", got)
	}
	g.Backend.On("costly", gatetest.JSON(http.StatusOK, `{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":150000,"output_tokens":1}}`))
	message(t, g, key, "costly", http.StatusOK)
	for range 10 {
		g.Login(t, "ann", "a wrong password")
	}
	got := shown()
	for _, want := range []string{"Calls are restricted: 0.14901 is uncollected, 0.001 was charged", "Log-ins by password are locked until 20"} {
		if !strings.Contains(got, want) {
			t.Errorf("the output lacks %q:\n%s", want, got)
		}
	}
}
