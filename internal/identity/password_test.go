package identity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestPasswordRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, password string
		want           fault.Code
	}{
		{"nothing", "", fault.MissingParameter},
		{"7 characters", "abc efg", fault.InvalidParameter},
		{"8 characters", "abc efgh", ""},
		{"7 characters of many bytes", "äöüßéèê", fault.InvalidParameter},
		{"8 characters of many bytes", "日本語日本語日語", ""},
		{"128 characters", strings.Repeat("ab", 64), ""},
		{"129 characters", strings.Repeat("ab", 64) + "a", fault.InvalidParameter},
		{"128 of four bytes", strings.Repeat("😀🙂", 64), ""},
		{"invalid UTF-8", "abc efgh\xff", fault.InvalidParameter},
		{"spaces and control characters", " \t \x00 \n x", ""},
		{"a common one", "password123", fault.InvalidParameter},
		{"a common one in another case", "PassWord123", fault.InvalidParameter},
		{"one that begins like a common one", "password1234x", ""},
		{"the first on the list", "123456789", fault.InvalidParameter},
		{"two common ones with a line break", "123456789\n12345678", ""},
		{"one repeated character", "zzzzzzzzzzzz", fault.InvalidParameter},
		{"the user's name", "marianne", fault.InvalidParameter},
		{"the user's name in another case", "MariAnne", fault.InvalidParameter},
		{"the user's name and more", "marianne+", ""},
	} {
		if refusal := checkPassword("Marianne", c.password); (refusal == nil) != (c.want == "") || refusal != nil && refusal.Code != c.want {
			t.Errorf("%s: %v, want %q", c.what, refusal, c.want)
		}
	}
	// Full-width letters also fold to the name.
	if checkPassword("ｍａｒｉａｎｎｅ", "marianne") == nil {
		t.Error("a password that is the folded name is accepted")
	}
}

func TestPasswordsAreNotNormalised(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.user(t, "ann")
	for _, typed := range []string{"  spaces around  ", "Ｗｉｄｅ letters", "e\u0301 composed?", "\u00e9 composed?", "tab\tand\x00nul", strings.Repeat("long", 32)} {
		if err := f.SetPassword(ctx, "operator", "ann", typed); err != nil {
			t.Fatalf("%q: %v", typed, err)
		}
		for _, other := range []string{strings.TrimSpace(typed), strings.ToLower(typed), "é composed?", "Wide letters", typed + " ", typed[:len(typed)-1], strings.ToUpper(typed)} {
			if other == typed {
				continue
			}
			f.clock.Advance(time.Hour)
			refusedAs(t, fmt.Sprintf("%q for %q", other, typed), f.tryLogin(t, "ann", other, testDevice), fault.NotLoggedIn)
		}
		refusedAs(t, fmt.Sprintf("%q", typed), f.tryLogin(t, "ann", typed, testDevice), "")
	}
}

func TestChangingAPasswordEndsEarlierAccess(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	own, other, bobs := f.login(t, "ann"), f.login(t, "ann"), f.login(t, "bob")
	token := f.token(t, "ann")
	code := must(f.IssueResetCode(ctx, "operator", "ann"))(t).Reveal()

	for what, c := range map[string]struct {
		old, fresh string
		want       fault.Code
		param      string
	}{
		"no old password":       {"", otherPassword, fault.MissingParameter, "password"},
		"a wrong old password":  {otherPassword, otherPassword, fault.VerificationFailed, "password"},
		"a new one too short":   {goodPassword, "short", fault.InvalidParameter, "new_password"},
		"no new one":            {goodPassword, "", fault.MissingParameter, "new_password"},
		"a common new password": {goodPassword, "password1", fault.InvalidParameter, "new_password"},
	} {
		_, err := f.ChangePassword(ctx, own.Account, c.old, c.fresh)
		if codeOf(err) != c.want || paramOf(err) != c.param {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.checkSession(t, "another session, after refusals", other.Secret, true)

	renewed := must(f.ChangePassword(ctx, own.Account, goodPassword, otherPassword))(t)
	f.checkSession(t, "another session", other.Secret, false)
	f.checkSession(t, "the old secret of the session of the request", own.Secret, false)
	f.checkToken(t, "the access token", token, false)
	account, ok := f.sessionAccount(t, renewed)
	if !ok || account.Credential != own.Account.Credential {
		t.Errorf("the session of the request: %+v, %v", account, ok)
	}
	f.checkSession(t, "a session of another user", bobs.Secret, true)
	refusedAs(t, "the old password", f.tryLogin(t, "ann", goodPassword, testDevice), fault.NotLoggedIn)
	refusedAs(t, "the new password", f.tryLogin(t, "ann", otherPassword, testDevice), "")
	err := second(f.ResetPassword(ctx, code, goodPassword, testDevice, LoginLimits{}))
	refusedAs(t, "a reset code from before", err, fault.VerificationFailed)
	_, err = f.ChangePassword(ctx, other.Account, otherPassword, goodPassword)
	refusedAs(t, "a change by a session that has ended", err, fault.NotLoggedIn)

	// An access token can also change the password. It ends with the sessions.
	token = f.token(t, "ann")
	program, _ := f.AuthenticateToken(token)
	if secret := must(f.ChangePassword(ctx, program, otherPassword, goodPassword))(t); secret != "" {
		t.Error("a request with an access token returned a session secret")
	}
	f.checkToken(t, "the access token of the request", token, false)
	f.checkSession(t, "the session, when a program changes the password", renewed, false)
	_, err = f.ChangePassword(ctx, program, goodPassword, otherPassword)
	refusedAs(t, "a change by a token that has ended", err, fault.NotLoggedIn)
}

func TestAnAccountWithoutAPasswordNeedsAnOperator(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.user(t, "ann")
	program, _ := f.AuthenticateToken(f.token(t, "ann"))
	_, err := f.ChangePassword(ctx, program, "", otherPassword)
	refusedAs(t, "a first password by an access token", err, fault.Conflict)
	err = f.ProvePassword(ctx, program, otherPassword)
	refusedAs(t, "a proof of no password", err, fault.Conflict)
	if !strings.Contains(err.Error(), "operator") {
		t.Errorf("the error does not name the operator: %v", err)
	}
}

func TestAPasskeyUserSetsAFirstPasswordAfterAStepUp(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	entry := f.openEntry(t, f.user(t, "ann"), false)
	v, _ := f.withPasskey(t, entry.Account)
	login := must(f.logInByPasskey(t, v))(t)
	_, err := f.ChangePassword(ctx, login.Account, "", goodPassword)
	refusedAs(t, "not verified", err, fault.VerificationRequired)
	refusedAs(t, "answered", f.completeVerification(t, login.Account, v), "")
	refusedAs(t, "verified", f.verifyByPasskey(t, login.Account), "")
	renewed := must(f.ChangePassword(ctx, login.Account, "", goodPassword))(t)
	f.checkSession(t, "the session of the request", renewed, true)
	if half := f.login(t, "ann"); !half.Account.HalfOpen || len(half.Factors) != 1 || half.Factors[0] != "passkey" {
		t.Errorf("%+v", half)
	}
}

func TestPasswordProofsAreLimited(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	entry := f.login(t, "ann")
	// Right passwords also count, because each costs a hash.
	for range maxPasswordAttempts / 2 {
		refusedAs(t, "a wrong one", f.ProvePassword(ctx, entry.Account, otherPassword), fault.VerificationFailed)
		refusedAs(t, "the right one", f.ProvePassword(ctx, entry.Account, goodPassword), "")
	}
	refusedAs(t, "the right one after too many", f.ProvePassword(ctx, entry.Account, goodPassword), fault.TooManyAttempts)
	f.checkSession(t, "the session", entry.Secret, true)
	refusedAs(t, "a log-in, which has its own counter", f.tryLogin(t, "ann", goodPassword, testDevice), "")
	f.clock.Advance(15 * time.Minute)
	refusedAs(t, "the right one 15 minutes later", f.ProvePassword(ctx, entry.Account, goodPassword), "")
}

func TestAnOperatorsPasswordEndsEarlierAccess(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	entry, token := f.login(t, "ann"), f.token(t, "ann")
	refusedAs(t, "a common one", f.SetPassword(ctx, "operator", "ann", "12345678"), fault.InvalidParameter)
	refusedAs(t, "of an unknown user", f.SetPassword(ctx, "operator", "eve", otherPassword), fault.NotFound)
	if err := f.SetPassword(ctx, "operator", "ann", otherPassword); err != nil {
		t.Fatal(err)
	}
	f.checkSession(t, "a session", entry.Secret, false)
	f.checkToken(t, "the access token", token, false)
	refusedAs(t, "the old password", f.tryLogin(t, "ann", goodPassword, testDevice), fault.NotLoggedIn)
	refusedAs(t, "the new one", f.tryLogin(t, "ann", otherPassword, testDevice), "")
}
