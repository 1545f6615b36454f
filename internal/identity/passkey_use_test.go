package identity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestALogInByPasskeyNamesNoUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.withPasskey(t, f.comes(t, f.user(t, "ann"), false))
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

// Each row is an answer that must be refused for every use of a passkey.
func TestAWrongAnswerIsRefused(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(v *device){
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
		ann := f.comes(t, user, false)
		fresh := newDevice()
		spoil(fresh)
		err := f.makes(t, ann, fresh.create(t, f.askForPasskeyOf(t, ann, "")))
		expect(t, what+" registers", err, fault.VerificationFailed)

		v, _ := f.withPasskey(t, ann)
		good := *v
		spoil(v)
		_, err = f.entering(t, v)
		expect(t, what+" logs in", err, fault.VerificationFailed)
		expect(t, what+" verifies", f.answered(t, ann, v), fault.VerificationFailed)
		expect(t, what+" leaves an assertion", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)

		good.cred.Counter = v.cred.Counter
		if _, err := f.entering(t, &good); err != nil {
			t.Errorf("%s: the good one after it: %v", what, err)
		}
	}
}

func TestAnAnswerOfAnotherPasskeyIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.comes(t, f.user(t, "ann"), false), f.comes(t, f.user(t, "bob"), false)
	anns, _ := f.withPasskey(t, ann)
	bobs, _ := f.withPasskey(t, bob)

	unknown := newDevice()
	unknown.auth.Options.UserHandle = anns.auth.Options.UserHandle
	_, ofUnknown := f.entering(t, unknown)
	expect(t, "an unknown passkey", ofUnknown, fault.VerificationFailed)
	forged := *anns
	forged.cred.Key = unknown.cred.Key
	_, ofForged := f.entering(t, &forged)
	expect(t, "her passkey by another key", ofForged, fault.VerificationFailed)
	if ofUnknown.Error() != ofForged.Error() {
		t.Errorf("unknown and wrong read differently: %v, %v", ofUnknown, ofForged)
	}
	mixed := *bobs
	mixed.auth.Options.UserHandle = anns.auth.Options.UserHandle
	_, err := f.entering(t, &mixed)
	expect(t, "the passkey of bob under the handle of ann", err, fault.VerificationFailed)
	expect(t, "the passkey of bob for the verification of ann", f.answered(t, ann, bobs), fault.VerificationFailed)
	if err := f.answered(t, ann, anns); err != nil {
		t.Errorf("her own: %v", err)
	}
}

func TestACounterThatDoesNotRiseRevealsACopyUnlessThePasskeyIsSynced(t *testing.T) {
	t.Parallel()
	for _, synced := range []bool{false, true} {
		f := newFixture(t)
		user := f.user(t, "ann")
		ann := f.comes(t, user, false)
		v := newDevice()
		v.auth.Options.BackupEligible, v.auth.Options.BackupState = synced, synced
		v.cred.Counter = 5
		if passkey := f.registered(t, ann, v); passkey.BackedUp != synced {
			t.Errorf("backed up: %+v", passkey)
		}
		expect(t, "a counter that rises", f.answered(t, ann, v), "")
		want := fault.VerificationFailed
		if synced {
			want = ""
		}
		for _, counter := range []uint32{v.cred.Counter, 3, 0} {
			v.cred.Counter = counter
			err := f.answers(t, ann, v.repeat(t, f.asked(t, ann)))
			expect(t, fmt.Sprintf("a counter of %d after 6, synced %v", counter, synced), err, want)
			options, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.FinishPasskeyLogin(t.Context(), here, ceremony.Reveal(), v.repeat(t, options), testDevice, testTerms)
			expect(t, fmt.Sprintf("a log-in with a counter of %d after 6, synced %v", counter, synced), err, want)
		}
		v.cred.Counter = 6
		expect(t, "one that rises again", f.answered(t, ann, v), "")
		events, _, err := f.Audit.Activity(t.Context(), user.ID, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var told int
		for _, e := range events {
			if e.Action == "passkey.copied" {
				told++
			}
		}
		if want := map[bool]int{false: 6}[synced]; told != want {
			t.Errorf("synced %v: %d copies are told, want %d", synced, told, want)
		}
	}
}

func TestADeviceThatDoesNotCountIsTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	v, _ := f.withPasskey(t, ann)
	for range 2 {
		expect(t, "a counter of 0", f.answers(t, ann, v.repeat(t, f.asked(t, ann))), "")
	}
}

func TestADisabledUserDoesNotLogInByPasskey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	v, _ := f.withPasskey(t, f.comes(t, f.user(t, "ann"), false))
	if _, err := f.SetUserDisabled(t.Context(), "operator", "ann", true); err != nil {
		t.Fatal(err)
	}
	_, err := f.entering(t, v)
	expect(t, "disabled", err, fault.UserDisabled)
	v.auth.Options.UserNotVerified = true
	_, err = f.entering(t, v)
	expect(t, "disabled, by a wrong answer", err, fault.VerificationFailed)
	v.auth.Options.UserNotVerified = false
	if _, err := f.SetUserDisabled(t.Context(), "operator", "ann", false); err != nil {
		t.Fatal(err)
	}
	_, err = f.entering(t, v)
	expect(t, "enabled again", err, "")
}
