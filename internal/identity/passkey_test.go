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
	entry := f.openEntry(t, user, false)
	ann := entry.Account
	options := f.beginRegistration(t, ann, "Laptop")
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
	f.checkSession(t, "the earlier secret of the session", entry.Secret, false)
	f.checkSession(t, "the new secret of the session", renewed, true)
	has, err := f.Factors(t.Context(), user.ID)
	if err != nil || len(has.Passkeys) != 1 || has.Passkeys[0] != passkey || has.TOTP {
		t.Errorf("%+v, %v", has, err)
	}
	if handle := v.auth.Options.UserHandle; len(handle) != 64 || strings.Contains(string(handle), user.ID) {
		t.Errorf("the user handle has %d bytes", len(handle))
	}

	f.clock.Advance(time.Hour)
	f.Directory = f.reopened(t)
	login, err := f.logInByPasskey(t, v)
	if err != nil || login.Account.UserID != user.ID || login.Account.HalfOpen || !login.Account.Session || len(login.Factors) != 0 {
		t.Fatalf("%+v, %v", login, err)
	}
	f.checkSession(t, "the session of a log-in by passkey", login.Secret, true)
	if has, _ := f.Factors(t.Context(), user.ID); has.Passkeys[0].LastUsed != f.clock.Now().Unix() {
		t.Errorf("used at %d, but listed as %+v", f.clock.Now().Unix(), has)
	}
	if again := asText(t, f.beginRegistration(t, ann, "")); !strings.Contains(again, `"excludeCredentials":[{"type":"public-key","id":`) {
		t.Errorf("the options do not name the registered passkey: %s", again)
	}
}

func TestACredentialIDBelongsToOneUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.newAccount(t, f.user(t, "ann"), false), f.newAccount(t, f.user(t, "bob"), false)
	anns, _ := f.withPasskey(t, ann)
	copied := newDevice()
	copied.cred.ID = anns.cred.ID
	for what, a := range map[string]*Account{"another user": bob, "the same user": ann} {
		err := f.finishRegistration(t, a, copied.create(t, f.beginRegistration(t, a, "")))
		expect(t, "a credential id that is taken, by "+what, err, fault.VerificationFailed)
	}
	if login, err := f.logInByPasskey(t, anns); err != nil || login.Account.UserID != ann.UserID {
		t.Errorf("%+v, %v", login, err)
	}
}

func TestRemovingAPasskey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.newAccount(t, f.user(t, "ann"), false), f.newAccount(t, f.user(t, "bob"), false)
	anns, passkey := f.withPasskey(t, ann)
	bobs, _ := f.withPasskey(t, bob)
	expect(t, "without a verification", second(f.RemovePasskey(t.Context(), ann, passkey.ID)), fault.VerificationRequired)
	for a, v := range map[*Account]*device{ann: anns, bob: bobs} {
		expect(t, "answered", f.completeVerification(t, a, v), "")
		expect(t, "verified", f.verifyByPasskey(t, a), "")
	}
	ofAnother := second(f.RemovePasskey(t.Context(), bob, passkey.ID))
	expect(t, "the passkey of another user", ofAnother, fault.NotFound)
	renewed, err := f.RemovePasskey(t.Context(), ann, passkey.ID)
	if err != nil || renewed == "" {
		t.Fatal(err)
	}
	ann.setSecret(renewed)
	if removed := second(f.RemovePasskey(t.Context(), bob, passkey.ID)); removed == nil || removed.Error() != ofAnother.Error() {
		t.Errorf("the errors for another user's and a removed passkey differ: %v, %v", ofAnother, removed)
	}
	_, err = f.logInByPasskey(t, anns)
	expect(t, "a log-in by the removed passkey", err, fault.VerificationFailed)
	_, err = f.BeginPasskeyVerify(t.Context(), here, ann)
	expect(t, "a verification without a passkey", err, fault.NoFactor)
	f.registerPasskey(t, ann, anns) // its id can be used again
}

func TestAnAccountHasAtMostTwentyPasskeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	other := f.newAccount(t, User{ID: ann.UserID}, false)
	for range 19 {
		f.withPasskey(t, ann)
	}
	first, late := newDevice(), newDevice()
	begun, alsoBegun := f.beginRegistration(t, ann, ""), f.beginRegistration(t, other, "")
	expect(t, "the 20th", f.finishRegistration(t, ann, first.create(t, begun)), "")
	expect(t, "the 21st, begun before", f.finishRegistration(t, other, late.create(t, alsoBegun)), fault.PasskeyNotCompleted) // the 20th passkey has ended the ceremonies that had begun
	_, err := f.factors.BeginPasskey(t.Context(), here, ann.holder(), "", false)
	expect(t, "the 21st", err, fault.Conflict)
}

func TestAFirstPasskeyNeedsThePasswordAndAFurtherOneAStepUp(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	user := f.userWithPassword(t, "ann")
	ann := f.newAccount(t, user, false)
	begin := func(a *Account, password string) (any, error) {
		return f.BeginPasskey(t.Context(), here, a, password, "")
	}
	expect(t, "no password", second(begin(ann, "")), fault.MissingParameter)
	expect(t, "a wrong password", second(begin(ann, otherPassword)), fault.VerificationFailed)
	expect(t, "half-open", second(begin(f.newAccount(t, user, true), goodPassword)), fault.SecondFactorRequired)
	options, err := begin(ann, goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	v := newDevice()
	expect(t, "the password", f.finishRegistration(t, ann, v.create(t, options)), "")
	expect(t, "a further passkey by the password", second(begin(ann, goodPassword)), fault.VerificationRequired)
	expect(t, "answered", f.completeVerification(t, ann, v), "")
	expect(t, "verified", f.verifyByPasskey(t, ann), "")
	expect(t, "a further passkey after a verification", second(begin(ann, "")), "")
}

func TestResetFactorsEndsPasskeysAndCeremonies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	v, _ := f.withPasskey(t, ann)
	toVerify, toRegister := f.beginVerification(t, ann), f.beginRegistration(t, ann, "")
	if err := f.ResetFactors(t.Context(), "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	expect(t, "a verification from before", f.finishVerification(t, ann, v.get(t, toVerify)), fault.PasskeyNotCompleted)
	expect(t, "a registration from before", f.finishRegistration(t, ann, newDevice().create(t, toRegister)), fault.PasskeyNotCompleted)
	_, err := f.logInByPasskey(t, v)
	expect(t, "a log-in by a passkey from before", err, fault.VerificationFailed)
	f.registerPasskey(t, ann, v) // its id can be used again
}

func TestInvalidPasskeyAnswersAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	f.withPasskey(t, ann)
	for _, text := range []string{"", "null", "[]", "{", `"x"`, `{"id":"a"}`, `{"id":"AAAA","rawId":"AAAA","type":"public-key","response":{}}`} {
		f.beginVerification(t, ann)
		expect(t, text, f.finishVerification(t, ann, []byte(text)), fault.InvalidParameter)
		f.beginRegistration(t, ann, "")
		expect(t, text, f.finishRegistration(t, ann, []byte(text)), fault.InvalidParameter)
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
