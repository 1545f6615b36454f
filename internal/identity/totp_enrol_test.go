package identity

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestAnEnrolmentUsesUpItsCode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	enrolment, err := f.factors.SetUpTOTP(t.Context(), ann.holder(), "My Gate: one", true)
	if err != nil {
		t.Fatal(err)
	}
	seed := enrolment.Secret.Reveal()
	want := "otpauth://totp/My%20Gate%20one:ann?secret=" + seed + "&issuer=My%20Gate%20one&algorithm=SHA1&digits=6&period=30"
	if got := enrolment.URI.Reveal(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if len(seed) != 32 || !strings.HasPrefix(enrolment.QR.Reveal(), "data:image/png;base64,") || enrolment.Expires != f.clock.Now().Add(10*time.Minute).Unix() {
		t.Errorf("%d digits of seed, %d, %.40s", len(seed), enrolment.Expires, enrolment.QR.Reveal())
	}
	if has, err := f.Factors(t.Context(), ann.UserID); err != nil || has.TOTP {
		t.Errorf("TOTP is on before its first code: %+v, %v", has, err)
	}
	expect(t, "a wrong first code", f.enableTOTP(t, ann, f.wrongCode(t, seed)), fault.VerificationFailed)
	code := f.code(t, seed, 0)
	codes, renewed, err := f.EnableTOTP(t.Context(), ann, code)
	if err != nil || len(codes) != 10 || renewed == "" {
		t.Fatalf("%d codes, %v, %v", len(codes), renewed != "", err)
	}
	ann.setSecret(renewed)
	if has, err := f.Factors(t.Context(), ann.UserID); err != nil || !has.TOTP || has.BackupCodes != 10 {
		t.Errorf("%+v, %v", has, err)
	}
	expect(t, "the code of the enrolment, again", f.verify(t, ann, code), fault.VerificationFailed)
	expect(t, "the next code", f.verify(t, ann, f.code(t, seed, 1)), "")
	shown := fmt.Sprintf("%v %+v %#v", enrolment, enrolment, codes)
	inJSON, _ := json.Marshal(enrolment)
	for _, secret := range []string{seed, codes[0].Reveal(), enrolment.QR.Reveal()} {
		if strings.Contains(shown+string(inJSON), secret) {
			t.Errorf("a secret is printed: %s %s", shown, inJSON)
		}
	}
}

func TestAnEnrolmentExpiresAndIsBoundToItsSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, other := f.newAccount(t, user, false), f.newAccount(t, user, false)
	begin := func() string {
		enrolment, err := f.factors.SetUpTOTP(t.Context(), ann.holder(), "Gate", true)
		if err != nil {
			t.Fatal(err)
		}
		return enrolment.Secret.Reveal()
	}
	expect(t, "without an enrolment", f.enableTOTP(t, ann, "123456"), fault.NoFactor)
	replaced := begin()
	seed := begin()
	expect(t, "of an enrolment that was replaced", f.enableTOTP(t, ann, f.code(t, replaced, 0)), fault.VerificationFailed)
	expect(t, "by another session", f.enableTOTP(t, other, f.code(t, seed, 0)), fault.NoFactor)
	f.clock.Advance(10 * time.Minute)
	expect(t, "after 10 minutes", f.enableTOTP(t, ann, f.code(t, seed, 0)), fault.NoFactor)
	seed = begin()
	f.clock.Advance(10*time.Minute - time.Second)
	expect(t, "a second before", f.enableTOTP(t, ann, f.code(t, seed, 0)), "")
	if _, err := f.factors.SetUpTOTP(t.Context(), ann.holder(), "Gate", true); codeOf(err) != fault.Conflict {
		t.Errorf("TOTP that is on was replaced: %v", err)
	}
	expect(t, "a second time", f.enableTOTP(t, ann, f.code(t, seed, 1)), fault.Conflict)
}

// TestTheFirstFactorNeedsThePasswordAndAFurtherOneAStepUp ensures that a thief of the cookie cannot
// get permanent access.
func TestTheFirstFactorNeedsThePasswordAndAFurtherOneAStepUp(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	user := f.userWithPassword(t, "ann")
	ann := f.newAccount(t, user, false)
	setUp := func(a *Account, password string) error {
		_, err := f.SetUpTOTP(t.Context(), a, password, "Gate")
		return err
	}
	expect(t, "no password", setUp(ann, ""), fault.MissingParameter)
	expect(t, "a wrong password", setUp(ann, otherPassword), fault.VerificationFailed)
	expect(t, "a half-open session", setUp(f.newAccount(t, user, true), goodPassword), fault.SecondFactorRequired)
	expect(t, "the password", setUp(ann, goodPassword), "")
	f.withTOTP(t, ann)
	expect(t, "a further factor by the password", setUp(ann, goodPassword), fault.VerificationRequired)
}

func TestDisablingTOTPDeletesBackupCodesButNotTheLastStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	seed, codes := f.withTOTP(t, ann)
	if _, err := f.DisableTOTP(t.Context(), ann, f.wrongCode(t, seed)); codeOf(err) != fault.VerificationFailed {
		t.Errorf("disabled by a wrong code: %v", err)
	}
	renewed, err := f.DisableTOTP(t.Context(), ann, f.code(t, seed, 1))
	if err != nil || renewed == "" {
		t.Fatal(renewed, err)
	}
	ann.setSecret(renewed)
	if has, err := f.Factors(t.Context(), ann.UserID); err != nil || has.TOTP || has.BackupCodes != 0 {
		t.Errorf("%+v, %v", has, err)
	}
	expect(t, "a code of disabled TOTP", f.verify(t, ann, f.code(t, seed, 1)), fault.NoFactor)
	expect(t, "a backup code of disabled TOTP", f.verify(t, ann, codes[0]), fault.NoFactor)
	// The step of the last code is kept after the seed is deleted.
	enrolment, err := f.factors.SetUpTOTP(t.Context(), ann.holder(), "Gate", true)
	if err != nil {
		t.Fatal(err)
	}
	fresh := enrolment.Secret.Reveal()
	expect(t, "a code of a step that was used up", f.enableTOTP(t, ann, f.code(t, fresh, 1)), fault.VerificationFailed)
	f.clock.Advance(30 * time.Second)
	expect(t, "a code of the next step", f.enableTOTP(t, ann, f.code(t, fresh, 1)), "")
}
