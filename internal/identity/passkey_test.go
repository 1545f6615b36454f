package identity

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestAPasskeyIsRegisteredAndLogsIn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	entry := f.enters(t, user, false)
	ann := entry.Account
	options := f.askForPasskeyOf(t, ann, "Laptop")
	for _, want := range []string{
		`"rp":{"name":"Gate","id":"gate.example"}`, `"residentKey":"required"`, `"userVerification":"required"`,
		`"attestation":"none"`, `"timeout":120000`, `"name":"ann"`,
	} {
		if text := asText(t, options); !strings.Contains(text, want) {
			t.Errorf("the options lack %s: %s", want, text)
		}
	}
	if text := asText(t, options); strings.Contains(text, user.ID) {
		t.Errorf("the options hold the user's id: %s", text)
	}
	v := newDevice()
	passkey, renewed, err := f.FinishPasskey(t.Context(), here, ann, v.create(t, options))
	if err != nil || passkey.Name != "Laptop" || passkey.Created != f.clock.Now().Unix() || passkey.LastUsed != 0 {
		t.Fatalf("%+v, %v", passkey, err)
	}
	f.open(t, "the session's secret from before", entry.Secret, false)
	f.open(t, "its new one", renewed, true)
	has, err := f.Factors(t.Context(), user.ID)
	if err != nil || len(has.Passkeys) != 1 || has.Passkeys[0] != passkey || has.TOTP {
		t.Errorf("%+v, %v", has, err)
	}
	if handle := v.auth.Options.UserHandle; len(handle) != 64 || strings.Contains(string(handle), user.ID) {
		t.Errorf("the user handle has %d bytes", len(handle))
	}

	f.clock.Advance(time.Hour)
	f.Directory = f.reopened(t)
	login, err := f.entering(t, v)
	if err != nil || login.Account.UserID != user.ID || login.Account.HalfOpen || !login.Account.Session || len(login.Factors) != 0 {
		t.Fatalf("%+v, %v", login, err)
	}
	f.open(t, "the session of a log-in by passkey", login.Secret, true)
	if has, _ := f.Factors(t.Context(), user.ID); has.Passkeys[0].LastUsed != f.clock.Now().Unix() {
		t.Errorf("used at %d: %+v", f.clock.Now().Unix(), has)
	}
	if again := asText(t, f.askForPasskeyOf(t, ann, "")); !strings.Contains(again, `"excludeCredentials":[{"type":"public-key","id":`) {
		t.Errorf("the options do not name the passkey that is there: %s", again)
	}
}

func TestACredentialIDIsOfOneUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.comes(t, f.user(t, "ann"), false), f.comes(t, f.user(t, "bob"), false)
	anns, _ := f.withPasskey(t, ann)
	copied := newDevice()
	copied.cred.ID = anns.cred.ID
	for what, a := range map[string]*Account{"another user": bob, "the same user": ann} {
		err := f.makes(t, a, copied.create(t, f.askForPasskeyOf(t, a, "")))
		expect(t, "a credential id that is taken, by "+what, err, fault.VerificationFailed)
	}
	if login, err := f.entering(t, anns); err != nil || login.Account.UserID != ann.UserID {
		t.Errorf("%+v, %v", login, err)
	}
}

func TestRemovingAPasskey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.comes(t, f.user(t, "ann"), false), f.comes(t, f.user(t, "bob"), false)
	anns, passkey := f.withPasskey(t, ann)
	bobs, _ := f.withPasskey(t, bob)
	expect(t, "without a verification", second(f.RemovePasskey(t.Context(), ann, passkey.ID)), fault.VerificationRequired)
	for a, v := range map[*Account]*device{ann: anns, bob: bobs} {
		expect(t, "answered", f.answered(t, a, v), "")
		expect(t, "verified", f.verifyByPasskey(t, a), "")
	}
	ofAnother := second(f.RemovePasskey(t.Context(), bob, passkey.ID))
	expect(t, "that of another", ofAnother, fault.NotFound)
	renewed, err := f.RemovePasskey(t.Context(), ann, passkey.ID)
	if err != nil || renewed == "" {
		t.Fatal(err)
	}
	ann.goesOn(renewed)
	if gone := second(f.RemovePasskey(t.Context(), bob, passkey.ID)); gone == nil || gone.Error() != ofAnother.Error() {
		t.Errorf("of another and not there read differently: %v, %v", ofAnother, gone)
	}
	_, err = f.entering(t, anns)
	expect(t, "a log-in by what was removed", err, fault.VerificationFailed)
	_, err = f.BeginPasskeyVerify(t.Context(), here, ann)
	expect(t, "a verification without a passkey", err, fault.NoFactor)
	f.registered(t, ann, anns) // its id is free again
}

func TestAnAccountHasAtMostTwentyPasskeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	other := f.comes(t, User{ID: ann.UserID}, false)
	for range 19 {
		f.withPasskey(t, ann)
	}
	first, late := newDevice(), newDevice()
	begun, alsoBegun := f.askForPasskeyOf(t, ann, ""), f.askForPasskeyOf(t, other, "")
	expect(t, "the 20th", f.makes(t, ann, first.create(t, begun)), "")
	expect(t, "the 21st, begun before", f.makes(t, other, late.create(t, alsoBegun)), fault.PasskeyNotCompleted) // the 20th passkey has ended the ceremonies that had begun
	_, err := f.factors.BeginPasskey(t.Context(), here, ann.holder(), "", false)
	expect(t, "the 21st", err, fault.Conflict)
}

func TestAFirstPasskeyDemandsThePasswordAndAFurtherOneAVerification(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	user := f.person(t, "ann")
	ann := f.comes(t, user, false)
	begin := func(a *Account, password string) (any, error) {
		return f.BeginPasskey(t.Context(), here, a, password, "")
	}
	expect(t, "no password", second(begin(ann, "")), fault.MissingParameter)
	expect(t, "a wrong one", second(begin(ann, otherPassword)), fault.VerificationFailed)
	expect(t, "half-open", second(begin(f.comes(t, user, true), goodPassword)), fault.SecondFactorRequired)
	options, err := begin(ann, goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	v := newDevice()
	expect(t, "the password", f.makes(t, ann, v.create(t, options)), "")
	expect(t, "a further one by the password", second(begin(ann, goodPassword)), fault.VerificationRequired)
	expect(t, "answered", f.answered(t, ann, v), "")
	expect(t, "verified", f.verifyByPasskey(t, ann), "")
	expect(t, "a further one after a verification", second(begin(ann, "")), "")
}

func TestAnOperatorsResetEndsPasskeysAndCeremonies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	v, _ := f.withPasskey(t, ann)
	toVerify, toRegister := f.asked(t, ann), f.askForPasskeyOf(t, ann, "")
	if err := f.ResetFactors(t.Context(), "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	expect(t, "a verification from before", f.answers(t, ann, v.get(t, toVerify)), fault.PasskeyNotCompleted)
	expect(t, "a registration from before", f.makes(t, ann, newDevice().create(t, toRegister)), fault.PasskeyNotCompleted)
	_, err := f.entering(t, v)
	expect(t, "a log-in by a passkey from before", err, fault.VerificationFailed)
	f.registered(t, ann, v) // its id is free again
}

func TestWhatIsNoAnswerIsRefusedAndSaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	f.withPasskey(t, ann)
	for _, junk := range []string{"", "null", "[]", "{", `"x"`, `{"id":"a"}`, `{"id":"AAAA","rawId":"AAAA","type":"public-key","response":{}}`} {
		f.asked(t, ann)
		expect(t, junk, f.answers(t, ann, []byte(junk)), fault.InvalidParameter)
		f.askForPasskeyOf(t, ann, "")
		expect(t, junk, f.makes(t, ann, []byte(junk)), fault.InvalidParameter)
	}
	if _, err := f.BeginPasskey(t.Context(), here, ann, "", strings.Repeat("é", 65)); codeOf(err) != fault.InvalidParameter || paramOf(err) != "name" {
		t.Errorf("a name of 65: %v", err)
	}
	if _, err := f.BeginPasskey(t.Context(), here, ann, "", "a\x00b"); paramOf(err) != "name" {
		t.Errorf("a name with NUL: %v", err)
	}
	_, _, err := f.BeginPasskeyLogin(t.Context(), RelyingParty{})
	expect(t, "without a relying party", err, fault.NotFound)
}
