package identity

import (
	"encoding/base32"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func mustBase32(t testing.TB, text string) []byte {
	t.Helper()
	secret, err := base32.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestCodesMatchOathtool(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("oathtool")
	if err != nil {
		t.Skip("oathtool is not installed")
	}
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	seed, _ := f.withTOTP(t, ann)
	out, err := exec.CommandContext(t.Context(), tool, "--totp", "--base32", "--now", f.clock.Now().Format("2006-01-02 15:04:05 UTC"), seed).Output()
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "oathtool's code", f.verify(t, ann, strings.TrimSpace(string(out))), "")
}

func TestACodeMayBeOneStepEarlyOrLate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		skew, steps int
		want        fault.Code
	}{
		{1, 0, ""}, {1, -1, ""}, {1, 1, ""},
		{1, -2, fault.VerificationFailed}, {1, 2, fault.VerificationFailed},
		{0, 0, ""}, {0, -1, fault.VerificationFailed}, {0, 1, fault.VerificationFailed},
	} {
		f := newFixture(t)
		ann := f.newAccount(t, f.user(t, "ann"), false)
		seed, _ := f.withTOTP(t, ann)
		f.clock.Advance(time.Hour)
		f.SetTOTPSkew(c.skew)
		if err := f.verify(t, ann, f.code(t, seed, c.steps)); codeOf(err) != c.want {
			t.Errorf("a code of %d steps from now, with a skew of %d: %v, want %q", c.steps, c.skew, err, c.want)
		}
	}
}

func TestACodeIsAcceptedOnceForAllPurposes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.newAccount(t, user, false)
	seed, _ := f.withTOTP(t, ann)
	f.clock.Advance(time.Minute)
	code := f.code(t, seed, 0)
	if _, err := f.LoginCode(t.Context(), f.newAccount(t, user, true), code); err != nil {
		t.Fatal(err)
	}
	expect(t, "verified by the code of a log-in", f.verify(t, ann, code), fault.VerificationFailed)
	_, err := f.LoginCode(t.Context(), f.newAccount(t, user, true), code)
	expect(t, "logged in by it again", err, fault.VerificationFailed)
	_, err = f.DisableTOTP(t.Context(), ann, code)
	expect(t, "disabled by it", err, fault.VerificationFailed)
	expect(t, "backup codes by it", third(f.RenewBackupCodes(t.Context(), ann, code)), fault.VerificationFailed)

	f.clock.Advance(5 * time.Minute)
	expect(t, "the code of the next step", f.verify(t, ann, f.code(t, seed, 1)), "")
	expect(t, "then the code of this step", f.verify(t, ann, f.code(t, seed, 0)), fault.VerificationFailed)
	expect(t, "then the code of the step before", f.verify(t, ann, f.code(t, seed, -1)), fault.VerificationFailed)
	f.Directory = f.reopened(t)
	f.clock.Advance(30 * time.Second)
	expect(t, "the used code, after a restart and a step", f.verify(t, ann, f.code(t, seed, 0)), fault.VerificationFailed)
	expect(t, "the code after it", f.verify(t, ann, f.code(t, seed, 1)), "")
}

func TestACodeIsAcceptedOnceInParallel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.newAccount(t, user, false)
	seed, _ := f.withTOTP(t, ann)
	code := f.code(t, seed, 0)
	ended := countResults(20, func(i int) error {
		if i%2 == 0 {
			return f.verify(t, ann, code)
		}
		_, err := f.DisableTOTP(t.Context(), ann, code)
		return err
	})
	if ended["done"] != 1 {
		t.Errorf("20 attempts with one code: %v", ended)
	}
}

func TestWrongCodesAreCountedBeforeTheyAreChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, other := f.newAccount(t, user, false), f.newAccount(t, user, false)
	seed, backup := f.withTOTP(t, ann)
	wrong := f.wrongCode(t, seed)
	ended := countResults(200, func(i int) error {
		if i%2 == 0 {
			return f.verify(t, ann, wrong)
		}
		return f.verify(t, other, wrong)
	})
	if ended[fault.VerificationFailed] > 5 || ended[fault.VerificationFailed]+ended[fault.TooManyAttempts] != 200 {
		t.Fatalf("200 concurrent wrong codes: %v", ended)
	}
	for _, when := range []struct {
		wait time.Duration
		want fault.Code
	}{{0, fault.TooManyAttempts}, {15*time.Minute - time.Second, fault.TooManyAttempts}, {time.Second, ""}} {
		f.clock.Advance(when.wait)
		f.Directory = f.reopened(t)
		expect(t, "the right code after "+when.wait.String()+" more", f.verify(t, ann, f.code(t, seed, 0)), when.want)
	}
	// A success resets the failures, and during a pause of TOTP backup codes are accepted.
	for range 5 {
		expect(t, "a wrong code", f.verify(t, ann, wrong), fault.VerificationFailed)
	}
	err := f.verify(t, ann, f.code(t, seed, 1))
	expect(t, "in the pause", err, fault.TooManyAttempts)
	if wait := retryAfter(err); wait != 15*time.Minute {
		t.Errorf("RetryAfter is %v", wait)
	}
	expect(t, "a backup code in the pause of TOTP", f.verify(t, ann, backup[0]), "")
	expect(t, "TOTP after it", f.verify(t, ann, f.code(t, seed, 1)), fault.TooManyAttempts)
	if bob := f.newAccount(t, f.user(t, "bob"), false); true {
		theirs, _ := f.withTOTP(t, bob)
		expect(t, "another user meanwhile", f.verify(t, bob, f.code(t, theirs, 0)), "")
	}
}

func TestAHundredWrongCodesInARowNeedAnOperator(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	seed, _ := f.withTOTP(t, ann)
	for n := range 100 {
		if err := f.verify(t, ann, f.wrongCode(t, seed)); codeOf(err) != fault.VerificationFailed {
			t.Fatalf("the %dth: %v", n+1, err)
		}
		if n%5 == 4 {
			f.clock.Advance(15 * time.Minute)
			ann = f.newAccount(t, User{ID: ann.UserID}, false)
		}
	}
	f.clock.Advance(1000 * time.Hour)
	f.Directory = f.reopened(t)
	ann = f.newAccount(t, User{ID: ann.UserID}, false)
	err := f.verify(t, ann, f.code(t, seed, 0))
	expect(t, "the right one, weeks later", err, fault.TooManyAttempts)
	if retryAfter(err) != 0 {
		t.Errorf("the error of a blocked user has RetryAfter: %v", err)
	}
	if err := f.ResetFactors(t.Context(), "operator", ann.UserID); err != nil {
		t.Fatal(err)
	}
	seed, _ = f.withTOTP(t, ann)
	expect(t, "after an operator's reset", f.verify(t, ann, f.code(t, seed, 0)), "")
}

func TestAnAttemptThatCannotBeCountedIsNotChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	seed, _ := f.withTOTP(t, ann)
	code := f.code(t, seed, 0)
	f.engine.Plan(storagetest.UnknownLost)
	expect(t, "while the store fails", f.verify(t, ann, code), fault.StoreUnavailable)
	expect(t, "the same code afterwards", f.verify(t, ann, code), "")
}

func TestCodesAreNotCountedWithoutTOTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	expect(t, "a user without TOTP", f.verify(t, ann, f.code(t, "", 0)), fault.NoFactor)
	for range 10 { // a refused request does not count as an attempt
		expect(t, "again", f.verify(t, ann, "123456"), fault.NoFactor)
	}
}

func TestInvalidCodesAreNotCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	seed, _ := f.withTOTP(t, ann)
	code := f.code(t, seed, 0)
	for _, text := range []string{
		" " + code, code + " ", code + "\n", code[:5], code + "0", "-" + code[1:], "+" + code[1:], "１２３４５６", "12345६", "abcdef", "0x1234", "12e456",
		strings.Repeat("9", 1000), "\x00" + code[1:],
	} {
		err := f.verify(t, ann, text)
		if codeOf(err) != fault.InvalidParameter || paramOf(err) != "code" {
			t.Errorf("%q: %v", text, err)
		}
	}
	expect(t, "nothing", f.verify(t, ann, ""), fault.MissingParameter)
	expect(t, "the code itself", f.verify(t, ann, code), "")
}

func TestACodeWhoseEffectFailsIsNotUsedUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, ended := f.newAccount(t, user, false), f.newAccount(t, user, false)
	seed, _ := f.withTOTP(t, ann)
	if err := f.Logout(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	code := f.code(t, seed, 0)
	expect(t, "by a session that has ended", f.verify(t, ended, code), fault.NotLoggedIn)
	expect(t, "by a session in force", f.verify(t, ann, code), "")
}
