package identity

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"image/png"
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

// RFC 6238, appendix B, the rows of SHA-1; six digits are the last of its eight.
func TestCodesAreThoseOfTheRFC(t *testing.T) {
	t.Parallel()
	seed := []byte("12345678901234567890")
	for at, code := range map[int64]string{
		59: "287082", 1111111109: "081804", 1111111111: "050471",
		1234567890: "005924", 2000000000: "279037", 20000000000: "353130",
	} {
		if step, ok := matchStep(seed, code, time.Unix(at, 0), 0); !ok || step != at/30 {
			t.Errorf("at %d: %d, %v", at, step, ok)
		}
	}
}

func TestCodesAreThoseOfOathtool(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("oathtool")
	if err != nil {
		t.Skip("oathtool is not installed")
	}
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
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
		ann := f.comes(t, f.user(t, "ann"), false)
		seed, _ := f.withTOTP(t, ann)
		f.clock.pass(time.Hour)
		f.SetTOTPSkew(c.skew)
		if err := f.verify(t, ann, f.code(t, seed, c.steps)); codeOf(err) != c.want {
			t.Errorf("a code of %d steps from now, with a skew of %d: %v, want %q", c.steps, c.skew, err, c.want)
		}
	}
}

func TestACodeIsGoodOnceForWhateverPurpose(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.comes(t, user, false)
	seed, _ := f.withTOTP(t, ann)
	f.clock.pass(time.Minute)
	code := f.code(t, seed, 0)
	if _, err := f.LoginCode(t.Context(), f.comes(t, user, true), code); err != nil {
		t.Fatal(err)
	}
	expect(t, "verified by the code of a log-in", f.verify(t, ann, code), fault.VerificationFailed)
	_, err := f.LoginCode(t.Context(), f.comes(t, user, true), code)
	expect(t, "logged in by it again", err, fault.VerificationFailed)
	_, err = f.DisableTOTP(t.Context(), ann, code)
	expect(t, "disabled by it", err, fault.VerificationFailed)
	expect(t, "backup codes by it", third(f.RenewBackupCodes(t.Context(), ann, code)), fault.VerificationFailed)

	f.clock.pass(5 * time.Minute)
	expect(t, "the code of the next step", f.verify(t, ann, f.code(t, seed, 1)), "")
	expect(t, "then that of this step", f.verify(t, ann, f.code(t, seed, 0)), fault.VerificationFailed)
	expect(t, "then that of the step before", f.verify(t, ann, f.code(t, seed, -1)), fault.VerificationFailed)
	f.Directory = f.reopened(t)
	f.clock.pass(30 * time.Second)
	expect(t, "the used one, after a restart and a step", f.verify(t, ann, f.code(t, seed, 0)), fault.VerificationFailed)
	expect(t, "the one after it", f.verify(t, ann, f.code(t, seed, 1)), "")
}

func TestARightCodeIsGoodOnceAlsoInParallel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.comes(t, user, false)
	seed, _ := f.withTOTP(t, ann)
	code := f.code(t, seed, 0)
	ended := tally(20, func(i int) error {
		if i%2 == 0 {
			return f.verify(t, ann, code)
		}
		_, err := f.DisableTOTP(t.Context(), ann, code)
		return err
	})
	if ended["done"] != 1 {
		t.Errorf("one code has ended 20 attempts so: %v", ended)
	}
}

func TestWrongCodesAreCountedBeforeTheyAreLookedAt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, other := f.comes(t, user, false), f.comes(t, user, false)
	seed, backup := f.withTOTP(t, ann)
	wrong := f.wrong(t, seed)
	ended := tally(200, func(i int) error {
		if i%2 == 0 {
			return f.verify(t, ann, wrong)
		}
		return f.verify(t, other, wrong)
	})
	if ended[fault.VerificationFailed] > 5 || ended[fault.VerificationFailed]+ended[fault.TooManyAttempts] != 200 {
		t.Fatalf("200 wrong codes at once: %v", ended)
	}
	for _, when := range []struct {
		passes time.Duration
		want   fault.Code
	}{{0, fault.TooManyAttempts}, {15*time.Minute - time.Second, fault.TooManyAttempts}, {time.Second, ""}} {
		f.clock.pass(when.passes)
		f.Directory = f.reopened(t)
		expect(t, "the right code after "+when.passes.String()+" more", f.verify(t, ann, f.code(t, seed, 0)), when.want)
	}
	// A success forgets the failures, and the pause of TOTP leaves backup codes.
	for range 5 {
		expect(t, "a wrong code", f.verify(t, ann, wrong), fault.VerificationFailed)
	}
	err := f.verify(t, ann, f.code(t, seed, 1))
	expect(t, "in the pause", err, fault.TooManyAttempts)
	if wait := retryAfter(err); wait != 15*time.Minute {
		t.Errorf("the pause asks to wait %v", wait)
	}
	expect(t, "a backup code in the pause of TOTP", f.verify(t, ann, backup[0]), "")
	expect(t, "TOTP after it", f.verify(t, ann, f.code(t, seed, 1)), fault.TooManyAttempts)
	if bob := f.comes(t, f.user(t, "bob"), false); true {
		theirs, _ := f.withTOTP(t, bob)
		expect(t, "another user meanwhile", f.verify(t, bob, f.code(t, theirs, 0)), "")
	}
}

func TestAHundredWrongCodesInARowNeedAnOperator(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	seed, _ := f.withTOTP(t, ann)
	for n := range 100 {
		if err := f.verify(t, ann, f.wrong(t, seed)); codeOf(err) != fault.VerificationFailed {
			t.Fatalf("the %dth: %v", n+1, err)
		}
		if n%5 == 4 {
			f.clock.pass(15 * time.Minute)
			ann = f.comes(t, User{ID: ann.UserID}, false)
		}
	}
	f.clock.pass(1000 * time.Hour)
	f.Directory = f.reopened(t)
	ann = f.comes(t, User{ID: ann.UserID}, false)
	err := f.verify(t, ann, f.code(t, seed, 0))
	expect(t, "the right one, weeks later", err, fault.TooManyAttempts)
	if retryAfter(err) != 0 {
		t.Errorf("somebody is told to come again: %v", err)
	}
	if err := f.ResetFactors(t.Context(), "operator", ann.UserID); err != nil {
		t.Fatal(err)
	}
	seed, _ = f.withTOTP(t, ann)
	expect(t, "after an operator's reset", f.verify(t, ann, f.code(t, seed, 0)), "")
}

func TestAnAttemptThatCannotBeCountedIsNotLookedAt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	seed, _ := f.withTOTP(t, ann)
	code := f.code(t, seed, 0)
	f.engine.Plan(storagetest.UnknownLost)
	expect(t, "while the store fails", f.verify(t, ann, code), fault.StoreUnavailable)
	expect(t, "the same code afterwards", f.verify(t, ann, code), "")
}

func TestASeedThatIsMissingNeverMatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := f.clock.Now()
	for _, seed := range [][]byte{nil, {}, make([]byte, 19)} {
		code := f.code(t, base32.StdEncoding.EncodeToString(seed), 0) // the library has one
		if _, ok := matchStep(seed, code, now, 1); ok {
			t.Errorf("a code of a seed of %d bytes is right", len(seed))
		}
	}
	ann := f.comes(t, f.user(t, "ann"), false)
	expect(t, "one without TOTP", f.verify(t, ann, f.code(t, "", 0)), fault.NoFactor)
	for range 10 { // and that is no attempt
		expect(t, "again", f.verify(t, ann, "123456"), fault.NoFactor)
	}
}

func TestATextThatIsNoCodeIsNotCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
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
	ann, gone := f.comes(t, user, false), f.comes(t, user, false)
	seed, _ := f.withTOTP(t, ann)
	if err := f.Logout(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	code := f.code(t, seed, 0)
	expect(t, "by a session that has ended", f.verify(t, gone, code), fault.NotLoggedIn)
	expect(t, "by one that has not", f.verify(t, ann, code), "")
}

// A scanner needs a quiet zone of four modules around the code, and the three
// corners by which it finds it.
func TestTheQRCodeHasAQuietZoneAndItsCorners(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ann", strings.Repeat("名", 64)} { // the longest
		url, err := picture(enrolmentURI(strings.Repeat("G", 64), name, make([]byte, seedSize)))
		if err != nil {
			t.Fatal(err)
		}
		file, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(url, "data:image/png;base64,"))
		if err != nil {
			t.Fatal(err)
		}
		code, err := png.Decode(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		dark := func(x, y int) bool { r, _, _, _ := code.At(x, y).RGBA(); return r < 0x8000 }
		size := code.Bounds().Dx()
		first, last, corner := size, 0, 0
		for x := range size {
			for y := range size {
				if dark(x, y) {
					first, last = min(first, x, y), max(last, x, y)
				}
			}
		}
		for first+corner < size && dark(first+corner, first) { // seven modules
			corner++
		}
		if corner == 0 || corner%7 != 0 || min(first, size-1-last) < 4*corner/7 {
			t.Fatalf("the code of %q goes from %d to %d of %d, its corner is %d wide", name, first, last, size, corner)
		}
		if !dark(last, first) || !dark(first, last) || (last+1-first)%(corner/7) != 0 {
			t.Errorf("the code of %q lacks a corner", name)
		}
	}
}

func FuzzCodeInput(f *testing.F) {
	fix := newFixture(f)
	ann := fix.comes(f, fix.user(f, "ann"), false)
	seed, codes := fix.withTOTP(f, ann)
	secret := mustBase32(f, seed)
	now := fix.clock.Now()
	for _, text := range []string{"", "123456", " 123456", codes[0], strings.ToLower(codes[1]), "oooo-iiii-llll", "１２３４５６"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := matchStep(secret, text, now, 1); ok != (text == fix.code(t, seed, -1) || text == fix.code(t, seed, 0) || text == fix.code(t, seed, 1)) {
			t.Fatalf("%q is right: %v", text, ok)
		}
		if isCode(text) && len(text) != 6 {
			t.Fatalf("%q has the form of a code", text)
		}
		if digits, ok := readBackupCode(text); ok {
			if again, ok := readBackupCode(digits); !ok || again != digits || len(digits) != 12 || isCode(text) {
				t.Fatalf("%q is read as %q, and that as %q", text, digits, again)
			}
		}
	})
}
