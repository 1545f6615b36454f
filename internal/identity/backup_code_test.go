package identity

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func retryAfter(err error) time.Duration {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.RetryAfter
	}
	return 0
}

func TestABackupCodeIsAcceptedOnceInAnySpelling(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.newAccount(t, user, false)
	_, codes := f.withTOTP(t, ann)
	if len(codes) != 10 || len(codes[0]) != len("XXXX-XXXX-XXXX") {
		t.Fatalf("%d codes such as %q", len(codes), codes[0])
	}
	typed := strings.NewReplacer("0", "o", "1", "l", "-", " ").Replace(strings.ToLower(codes[0]))
	if _, err := f.LoginCode(t.Context(), f.newAccount(t, user, true), typed); err != nil {
		t.Fatalf("%q for %q: %v", typed, codes[0], err)
	}
	expect(t, "the same code", f.verify(t, ann, codes[0]), fault.VerificationFailed)
	expect(t, "another code without dashes", f.verify(t, ann, strings.ReplaceAll(codes[1], "-", "")), "")
	f.Directory = f.reopened(t)
	expect(t, "a used one after a restart", f.verify(t, ann, codes[1]), fault.VerificationFailed)
	if has, err := f.Factors(t.Context(), ann.UserID); err != nil || has.BackupCodes != 8 {
		t.Errorf("%+v, %v", has, err)
	}
}

func TestABackupCodeIsAcceptedOnceInParallel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	_, codes := f.withTOTP(t, ann)
	ended := countResults(20, func(int) error { return f.verify(t, ann, codes[3]) })
	if ended["done"] != 1 {
		t.Errorf("20 uses of one code at the same time: %v, want 1 success", ended)
	}
}

func TestTheBackupCodeOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.newAccount(t, f.user(t, "ann"), false), f.newAccount(t, f.user(t, "bob"), false)
	_, anns := f.withTOTP(t, ann)
	f.withTOTP(t, bob)
	expect(t, "a code of another user", f.verify(t, bob, anns[0]), fault.VerificationFailed)
	expect(t, "the code by its own user", f.verify(t, ann, anns[0]), "")
}

func TestBackupCodesAreCountedSeparately(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	seed, codes := f.withTOTP(t, ann)
	ended := countResults(50, func(int) error { return f.verify(t, ann, "AAAA-AAAA-AAAA") })
	if ended[fault.VerificationFailed] > 5 || ended[fault.VerificationFailed]+ended[fault.TooManyAttempts] != 50 {
		t.Errorf("50 concurrent wrong backup codes: %v", ended)
	}
	expect(t, "a right one", f.verify(t, ann, codes[0]), fault.TooManyAttempts)
	expect(t, "TOTP meanwhile", f.verify(t, ann, f.code(t, seed, 0)), "")
	f.clock.Advance(15 * time.Minute)
	expect(t, "a right one after the pause", f.verify(t, ann, codes[0]), "")
}

func TestNewBackupCodesReplaceTheOld(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.newAccount(t, user, false)
	seed, old := f.withTOTP(t, ann)
	expect(t, "half-open", third(f.RenewBackupCodes(t.Context(), f.newAccount(t, user, true), f.code(t, seed, 0))), fault.SecondFactorRequired)
	expect(t, "a wrong code", third(f.RenewBackupCodes(t.Context(), ann, f.wrongCode(t, seed))), fault.VerificationFailed)
	codes, renewed, err := f.RenewBackupCodes(t.Context(), ann, old[0])
	if err != nil || len(codes) != 10 || renewed == "" {
		t.Fatalf("%d, %v, %v", len(codes), renewed != "", err)
	}
	ann.setSecret(renewed)
	expect(t, "an old one", f.verify(t, ann, old[1]), fault.VerificationFailed)
	for i, code := range codes {
		if err := f.verify(t, ann, code.Reveal()); err != nil {
			t.Errorf("the %dth: %v", i, err)
		}
	}
	if has, err := f.Factors(t.Context(), ann.UserID); err != nil || has.BackupCodes != 0 || !has.TOTP {
		t.Errorf("%+v, %v", has, err)
	}
	expect(t, "when none is left", f.verify(t, ann, codes[0].Reveal()), fault.VerificationFailed)
}
