package identity

import (
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
)

func TestAnOperatorsCodeSetsANewPasswordOnce(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	entry, token := f.login(t, "ann"), f.token(t, "ann")
	_, key := f.key(t, "ann", KeySpec{})
	reset := func(code, password string) error {
		return second(f.ResetPassword(ctx, code, password, testDevice, LoginLimits{}))
	}

	replaced := must(f.IssueResetCode(ctx, "operator", "ann"))(t).Reveal()
	code := must(f.IssueResetCode(ctx, "operator", "ANN"))(t).Reveal()
	f.checkSession(t, "a session, while a code is in force", entry.Secret, true)
	refusedAs(t, "the old password, while a code is in force", f.tryLogin(t, "ann", goodPassword, testDevice), "")
	for what, wrong := range map[string]string{"invalid": "x", "a code that was replaced": replaced, "one digit short": code[1:]} {
		refusedAs(t, what, reset(wrong, otherPassword), fault.VerificationFailed)
	}
	refusedAs(t, "no code", reset("", otherPassword), fault.MissingParameter)
	for _, weak := range []string{"", "short", "password1", "Ann"} {
		if err := reset(code, weak); paramOf(err) != "password" {
			t.Errorf("%q: %v", weak, err)
		}
	}
	if err := reset(strings.ToLower(code), otherPassword); err != nil {
		t.Fatalf("after refused passwords: %v", err)
	}
	f.checkSession(t, "a session from before", entry.Secret, false)
	f.checkToken(t, "an access token from before", token, false)
	f.checkKey(t, "an API key", key, true)
	refusedAs(t, "the old password", f.tryLogin(t, "ann", goodPassword, testDevice), fault.NotLoggedIn)
	refusedAs(t, "the new one", f.tryLogin(t, "ann", otherPassword, testDevice), "")
	refusedAs(t, "the code again", reset(code, goodPassword), fault.VerificationFailed)
}

func TestAResetCodeIsUsedOnceInParallel(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.user(t, "ann") // has no password yet
	code := must(f.IssueResetCode(t.Context(), "operator", "ann"))(t).Reveal()
	var wg sync.WaitGroup
	var set atomic.Int32
	for i := range password.MaxAnonymous {
		wg.Go(func() {
			switch err := second(f.ResetPassword(t.Context(), code, goodPassword, address(i), LoginLimits{})); codeOf(err) {
			case "":
				set.Add(1)
			case fault.VerificationFailed:
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if set.Load() != 1 {
		t.Errorf("the code was used %d times", set.Load())
	}
	f.login(t, "ann")
}

func TestAResetCodeEndsAfterADayAndWithItsUser(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.user(t, "ann")
	reset := func(code string) error {
		return second(f.ResetPassword(ctx, code, goodPassword, testDevice, LoginLimits{}))
	}

	code := must(f.IssueResetCode(ctx, "operator", "ann"))(t).Reveal()
	f.clock.Advance(24 * time.Hour)
	refusedAs(t, "after 24 hours", reset(code), fault.VerificationFailed)

	code = must(f.IssueResetCode(ctx, "operator", "ann"))(t).Reveal()
	must(f.SetUserDisabled(ctx, "operator", "ann", true))(t)
	refusedAs(t, "of a disabled user", reset(code), fault.VerificationFailed)
	_, err := f.IssueResetCode(ctx, "operator", "ann")
	refusedAs(t, "a code for a disabled user", err, fault.Conflict)
	must(f.SetUserDisabled(ctx, "operator", "ann", false))(t)

	f.clock.Advance(24*time.Hour - time.Second)
	refusedAs(t, "a second before the day ends", reset(code), "")
	_, err = f.IssueResetCode(ctx, "operator", "eve")
	refusedAs(t, "a code for an unknown user", err, fault.NotFound)
}

func TestAResetCodeIsNotASetupCode(t *testing.T) {
	t.Parallel()
	code := credential.DrawOneTime().Reveal()
	one, two := credential.HashOneTime(setupPurpose, code), credential.HashOneTime(resetPurpose, code)
	if one == two {
		t.Error("two purposes have the same hash")
	}
	typed := credential.HashOneTime(setupPurpose, " "+strings.NewReplacer("0", "o", "1", "l", "-", "").Replace(strings.ToLower(code))+" ")
	if typed != one {
		t.Errorf("%q, typed with O for 0 and l for 1, is another code", code)
	}
	for _, text := range []string{"", "u", code + "0", strings.Repeat("0", 21), strings.Repeat("U", 20), strings.Repeat(" ", 200)} {
		if _, ok := credential.ReadCode(text, 20); ok || credential.HashOneTime(setupPurpose, text) == one {
			t.Errorf("%q is accepted as a code", text)
		}
	}
}

func TestAPasswordResetClearsFailedLogIns(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	for n := range 10 {
		from := testDevice
		from.Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})
		refusedAs(t, "a wrong password", f.tryLogin(t, "ann", otherPassword, from), fault.NotLoggedIn)
	}
	refusedAs(t, "one attempt more", f.tryLogin(t, "ann", goodPassword, testDevice), fault.TooManyAttempts)
	code := must(f.IssueResetCode(ctx, "operator", "ann"))(t).Reveal()
	if err := second(f.ResetPassword(ctx, code, otherPassword, testDevice, LoginLimits{})); err != nil {
		t.Fatal(err)
	}
	refusedAs(t, "the new one", f.tryLogin(t, "ann", otherPassword, testDevice), "")
}
