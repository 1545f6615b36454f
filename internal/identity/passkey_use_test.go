package identity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestTheOptionsOfALogInByPasskeyNameNoUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.withPasskey(t, f.newAccount(t, f.user(t, "ann"), false))
	options, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	text := asText(t, options)
	if strings.Contains(text, "allowCredentials") || strings.Contains(text, "ann") || !strings.Contains(text, `"userVerification":"required"`) {
		t.Errorf("%s", text)
	}
	if strings.Contains(text, ceremony.Reveal()) || strings.Contains(f.contents(t), ceremony.Reveal()) {
		t.Error("the secret of the ceremony is in the options, or in the store in clear")
	}
}

// TestAWrongAnswerIsRefused sends each wrong answer for every use of a passkey.
func TestAWrongAnswerIsRefused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(v *device){
		"another origin":        func(v *device) { v.page.Origin = "https://evil.example:8443" },
		"another port":          func(v *device) { v.page.Origin = "https://gate.example" },
		"another scheme":        func(v *device) { v.page.Origin = "http://gate.example:8443" },
		"a subdomain":           func(v *device) { v.page.Origin = "https://a.gate.example:8443" },
		"another relying party": func(v *device) { v.page.ID = "evil.example" },
		"no verification":       func(v *device) { v.auth.Options.UserNotVerified = true },
		"no user present":       func(v *device) { v.auth.Options.UserNotPresent = true },
	} {
		f := newFixture(t)
		user := f.user(t, "ann")
		ann := f.newAccount(t, user, false)
		fresh := newDevice()
		change(fresh)
		err := f.finishRegistration(t, ann, fresh.create(t, f.beginRegistration(t, ann, "")))
		expect(t, what+" registers", err, fault.VerificationFailed)

		v, _ := f.withPasskey(t, ann)
		good := *v
		change(v)
		_, err = f.logInByPasskey(t, v)
		expect(t, what+" logs in", err, fault.VerificationFailed)
		expect(t, what+" verifies", f.completeVerification(t, ann, v), fault.VerificationFailed)
		expect(t, what+" leaves an assertion", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)

		good.cred.Counter = v.cred.Counter
		if _, err := f.logInByPasskey(t, &good); err != nil {
			t.Errorf("%s: the right answer after it: %v", what, err)
		}
	}
}

func TestAnAnswerOfAnotherPasskeyIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.newAccount(t, f.user(t, "ann"), false), f.newAccount(t, f.user(t, "bob"), false)
	anns, _ := f.withPasskey(t, ann)
	bobs, _ := f.withPasskey(t, bob)

	unknown := newDevice()
	unknown.auth.Options.UserHandle = anns.auth.Options.UserHandle
	_, ofUnknown := f.logInByPasskey(t, unknown)
	expect(t, "an unknown passkey", ofUnknown, fault.VerificationFailed)
	forged := *anns
	forged.cred.Key = unknown.cred.Key
	_, ofForged := f.logInByPasskey(t, &forged)
	expect(t, "the passkey of ann with another key", ofForged, fault.VerificationFailed)
	if ofUnknown.Error() != ofForged.Error() {
		t.Errorf("the errors for unknown and wrong passkeys differ: %v, %v", ofUnknown, ofForged)
	}
	mixed := *bobs
	mixed.auth.Options.UserHandle = anns.auth.Options.UserHandle
	_, err := f.logInByPasskey(t, &mixed)
	expect(t, "the passkey of bob under the handle of ann", err, fault.VerificationFailed)
	expect(t, "the passkey of bob for the verification of ann", f.completeVerification(t, ann, bobs), fault.VerificationFailed)
	if err := f.completeVerification(t, ann, anns); err != nil {
		t.Errorf("the passkey of ann: %v", err)
	}
}

func TestACounterThatDoesNotRiseRevealsACopy(t *testing.T) {
	t.Parallel()
	for _, synced := range []bool{false, true} {
		f := newFixture(t)
		user := f.user(t, "ann")
		ann := f.newAccount(t, user, false)
		v := newDevice()
		v.auth.Options.BackupEligible, v.auth.Options.BackupState = synced, synced
		v.cred.Counter = 5
		if passkey := f.registerPasskey(t, ann, v); passkey.BackedUp != synced {
			t.Errorf("backed up: %+v", passkey)
		}
		expect(t, "a counter that rises", f.completeVerification(t, ann, v), "")
		want := fault.VerificationFailed
		if synced {
			want = ""
		}
		for _, counter := range []uint32{v.cred.Counter, 3, 0} {
			v.cred.Counter = counter
			err := f.finishVerification(t, ann, v.repeat(t, f.beginVerification(t, ann)))
			expect(t, fmt.Sprintf("a counter of %d after 6, synced %v", counter, synced), err, want)
			options, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.FinishPasskeyLogin(t.Context(), here, ceremony.Reveal(), v.repeat(t, options), testDevice, testTerms)
			expect(t, fmt.Sprintf("a log-in with a counter of %d after 6, synced %v", counter, synced), err, want)
		}
		v.cred.Counter = 6
		expect(t, "a counter that rises again", f.completeVerification(t, ann, v), "")
		events, _, err := f.Audit.Activity(t.Context(), user.ID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var recorded int
		for _, e := range events {
			if e.Action == "passkey.copied" {
				recorded++
			}
		}
		if want := map[bool]int{false: 6}[synced]; recorded != want {
			t.Errorf("synced %v: %d events of copies, want %d", synced, recorded, want)
		}
	}
}

func TestADeviceWithoutACounterIsAccepted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	v, _ := f.withPasskey(t, ann)
	for range 2 {
		expect(t, "a counter of 0", f.finishVerification(t, ann, v.repeat(t, f.beginVerification(t, ann))), "")
	}
}

func TestADisabledUserDoesNotLogInByPasskey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	v, _ := f.withPasskey(t, f.newAccount(t, f.user(t, "ann"), false))
	if _, err := f.SetUserDisabled(t.Context(), "operator", "ann", true); err != nil {
		t.Fatal(err)
	}
	_, err := f.logInByPasskey(t, v)
	expect(t, "disabled", err, fault.UserDisabled)
	v.auth.Options.UserNotVerified = true
	_, err = f.logInByPasskey(t, v)
	expect(t, "disabled, by a wrong answer", err, fault.VerificationFailed)
	v.auth.Options.UserNotVerified = false
	if _, err := f.SetUserDisabled(t.Context(), "operator", "ann", false); err != nil {
		t.Fatal(err)
	}
	_, err = f.logInByPasskey(t, v)
	expect(t, "enabled again", err, "")
}
