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

func TestABackupCodeIsAcceptedOnceInAllSpellings(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.comes(t, user, false)
	_, codes := f.withTOTP(t, ann)
	if len(codes) != 10 || len(codes[0]) != len("XXXX-XXXX-XXXX") {
		t.Fatalf("%d codes such as %q", len(codes), codes[0])
	}
	sloppy := strings.NewReplacer("0", "o", "1", "l", "-", " ").Replace(strings.ToLower(codes[0]))
	if _, err := f.LoginCode(t.Context(), f.comes(t, user, true), sloppy); err != nil {
		t.Fatalf("%q for %q: %v", sloppy, codes[0], err)
	}
	expect(t, "the same code", f.verify(t, ann, codes[0]), fault.VerificationFailed)
	expect(t, "another without dashes", f.verify(t, ann, strings.ReplaceAll(codes[1], "-", "")), "")
	f.Directory = f.reopened(t)
	expect(t, "a used one after a restart", f.verify(t, ann, codes[1]), fault.VerificationFailed)
	if has, err := f.Factors(t.Context(), ann.UserID); err != nil || has.BackupCodes != 8 {
		t.Errorf("%+v, %v", has, err)
	}
}

func TestABackupCodeIsAcceptedOnceInParallel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	_, codes := f.withTOTP(t, ann)
	ended := tally(20, func(int) error { return f.verify(t, ann, codes[3]) })
	if ended["done"] != 1 {
		t.Errorf("20 uses of one code at the same time: %v, want 1 success", ended)
	}
}

func TestTheBackupCodeOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.comes(t, f.user(t, "ann"), false), f.comes(t, f.user(t, "bob"), false)
	_, hers := f.withTOTP(t, ann)
	f.withTOTP(t, bob)
	expect(t, "a code of another user", f.verify(t, bob, hers[0]), fault.VerificationFailed)
	expect(t, "her code from her", f.verify(t, ann, hers[0]), "")
}

func TestBackupCodesHaveACounterOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	seed, codes := f.withTOTP(t, ann)
	ended := tally(50, func(int) error { return f.verify(t, ann, "AAAA-AAAA-AAAA") })
	if ended[fault.VerificationFailed] > 5 || ended[fault.VerificationFailed]+ended[fault.TooManyAttempts] != 50 {
		t.Errorf("50 wrong backup codes at once: %v", ended)
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
	ann := f.comes(t, user, false)
	seed, old := f.withTOTP(t, ann)
	expect(t, "half-open", third(f.RenewBackupCodes(t.Context(), f.comes(t, user, true), f.code(t, seed, 0))), fault.SecondFactorRequired)
	expect(t, "a wrong code", third(f.RenewBackupCodes(t.Context(), ann, f.wrong(t, seed))), fault.VerificationFailed)
	codes, renewed, err := f.RenewBackupCodes(t.Context(), ann, old[0])
	if err != nil || len(codes) != 10 || renewed == "" {
		t.Fatalf("%d, %v, %v", len(codes), renewed != "", err)
	}
	ann.goesOn(renewed)
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
