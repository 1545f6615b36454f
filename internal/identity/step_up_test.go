package identity

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestAStepUpIsBoundToItsLifetimeAndCredential(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	session, other, program := f.newAccount(t, user, false), f.newAccount(t, user, false), f.tokenAccount(t, user)
	expect(t, "before there is any factor", f.Fresh(t.Context(), session), "")
	seed, _ := f.withTOTP(t, session)
	for what, a := range map[string]*Account{"session": session, "other session": other, "token": program} {
		expect(t, what+" without a verification", f.Fresh(t.Context(), a), fault.VerificationRequired)
	}
	for what, a := range map[string]*Account{"session": session, "token": program} {
		f.clock.Advance(time.Hour)
		expires, renewed, err := f.Verify(t.Context(), a, "2fa", f.code(t, seed, 0), 300*time.Second)
		if err != nil || expires != f.clock.Now().Unix()+300 || (renewed != "") != a.Session {
			t.Errorf("%s: %d, renewed %v, %v", what, expires, renewed != "", err)
		}
		a.setSecret(renewed)
		expect(t, what+" immediately", f.Fresh(t.Context(), a), "")
		expect(t, "another session", f.Fresh(t.Context(), other), fault.VerificationRequired)
		f.clock.Advance(299 * time.Second)
		expect(t, what+" after 299 s", f.Fresh(t.Context(), a), "")
		expect(t, what+" after 299 s and a restart", f.reopened(t).Fresh(t.Context(), a), "")
		f.clock.Advance(time.Second)
		expect(t, what+" after 300 s", f.Fresh(t.Context(), a), fault.VerificationExpired)
		f.clock.Advance(time.Second)
		expect(t, what+" after 301 s", f.Fresh(t.Context(), a), fault.VerificationExpired)
	}
}

func TestAStepUpSurvivesANewSessionSecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	entry := f.openEntry(t, user, false)
	seed, _ := f.withTOTP(t, entry.Account)
	_, renewed, err := f.Verify(t.Context(), entry.Account, "2fa", f.code(t, seed, 0), 300*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := f.AuthenticateSession(t.Context(), entry.Secret.Reveal()); ok || err != nil {
		t.Errorf("the earlier secret is in force: %v, %v", ok, err)
	}
	a, ok, err := f.AuthenticateSession(t.Context(), renewed.Reveal())
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	expect(t, "the session by its new secret", f.Fresh(t.Context(), a), "")
}

// TestAReplacedSecretCannotUseALaterProof has a thief of a secret that the owner's step-up has
// replaced. The thief gets neither the new secret nor the use of the step-up.
func TestAReplacedSecretCannotUseALaterProof(t *testing.T) {
	t.Parallel()
	for what, try := range map[string]func(f fixture, a *Account, code string) error{
		"end the others": func(f fixture, a *Account, _ string) error { return second(f.EndSessions(t.Context(), a, false)) },
		"end all":        func(f fixture, a *Account, _ string) error { return second(f.EndSessions(t.Context(), a, true)) },
		"need a step-up": func(f fixture, a *Account, _ string) error { return f.Fresh(t.Context(), a) },
		"verify": func(f fixture, a *Account, code string) error {
			return third(f.Verify(t.Context(), a, "2fa", code, time.Minute))
		},
		"disable TOTP":   func(f fixture, a *Account, code string) error { return second(f.DisableTOTP(t.Context(), a, code)) },
		"create a token": func(f fixture, a *Account, _ string) error { return second(f.MintOwnToken(t.Context(), a)) },
		"create a key":   func(f fixture, a *Account, _ string) error { return third(f.CreateOwnKey(t.Context(), a, KeySpec{})) },
		"submit tasks":   func(f fixture, a *Account, _ string) error { return second(f.ConsolePrincipal(t.Context(), a)) },
		"change the password": func(f fixture, a *Account, _ string) error {
			return second(f.ChangePassword(t.Context(), a, goodPassword, otherPassword))
		},
		"renew": func(f fixture, a *Account, _ string) error {
			return f.store.Update(t.Context(), func(txn storage.Txn) error { return second(f.renewSession(txn, a)) })
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newPeople(t)
			entry := f.login(t, f.userWithPassword(t, "ann").Name)
			owner := entry.Account
			_, codes := f.withTOTP(t, owner)
			stale := *owner
			expect(t, "the owner verifies", f.verify(t, owner, codes[0]), "")
			expect(t, "the earlier secret", try(f, &stale, codes[1]), fault.NotLoggedIn)
			expect(t, "the owner, afterwards", f.Fresh(t.Context(), owner), "")
		})
	}
}

func TestAStepUpEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	program := f.tokenAccount(t, user)
	seed, _ := f.withTOTP(t, f.newAccount(t, user, false))
	expect(t, "verified", f.verify(t, program, f.code(t, seed, 0)), "")
	next := f.tokenAccount(t, user) // replaces the token
	expect(t, "the next token", f.Fresh(t.Context(), next), fault.VerificationRequired)
	f.clock.Advance(30 * time.Second)
	expect(t, "a verification by a token that was replaced", f.verify(t, program, f.code(t, seed, 0)), fault.NotLoggedIn)

	session := f.newAccount(t, user, false)
	expect(t, "verified", f.verify(t, session, f.code(t, seed, 0)), "")
	bob := f.newAccount(t, f.user(t, "bob"), false)
	f.withTOTP(t, bob)
	mixed := &Account{UserID: bob.UserID, Credential: session.Credential, Session: true}
	expect(t, "another user with the same credential", f.Fresh(t.Context(), mixed), fault.NotLoggedIn)
	err := f.store.View(t.Context(), func(r storage.Reader) error { return f.factors.Fresh(r, mixed.holder()) })
	expect(t, "the step-up of another user's credential", err, fault.VerificationRequired)
	err = f.store.Update(t.Context(), func(txn storage.Txn) error { return factor.EndStepUps(txn, user.ID) })
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "after all step-ups were ended", f.Fresh(t.Context(), session), fault.VerificationRequired)
	f.clock.Advance(30 * time.Second)
	expect(t, "verified", f.verify(t, session, f.code(t, seed, 0)), "")
	err = f.store.Update(t.Context(), func(txn storage.Txn) error { return factor.EndStepUp(txn, session.Credential) })
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "after its step-up was ended", f.Fresh(t.Context(), session), fault.VerificationRequired)
}

func TestAHalfOpenSessionIsNeverVerified(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	seed, codes := f.withTOTP(t, f.newAccount(t, user, false))
	half := f.newAccount(t, user, true)
	expect(t, "by TOTP", f.verify(t, half, f.code(t, seed, 0)), fault.SecondFactorRequired)
	expect(t, "by a backup code", f.verify(t, half, codes[0]), fault.SecondFactorRequired)
	_, _, err := f.Verify(t.Context(), half, "passkey", "", time.Minute)
	expect(t, "by passkey", err, fault.SecondFactorRequired)
	expect(t, "fresh", f.Fresh(t.Context(), half), fault.SecondFactorRequired)
	_, err = f.DisableTOTP(t.Context(), half, codes[0])
	expect(t, "disable", err, fault.SecondFactorRequired)
	expect(t, "enable", third(f.EnableTOTP(t.Context(), half, "123456")), fault.SecondFactorRequired)
	_, err = f.RemovePasskey(t.Context(), half, "psk_1")
	expect(t, "remove a passkey", err, fault.SecondFactorRequired)
}

func TestTheMethodOfAVerification(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.newAccount(t, user, false)
	try := func(method, code string) error {
		return third(f.Verify(t.Context(), ann, method, code, time.Minute))
	}
	expect(t, "2fa without a factor", try("2fa", "123456"), fault.NoFactor)
	expect(t, "passkey without a factor", try("passkey", ""), fault.NoFactor)
	expect(t, "none", try("", "123456"), fault.MissingParameter)
	seed, _ := f.withTOTP(t, ann)
	for _, method := range []string{"2FA", "totp", "password", " 2fa", "2fa\x00"} {
		err := try(method, f.code(t, seed, 0))
		if codeOf(err) != fault.InvalidParameter || paramOf(err) != "method" {
			t.Errorf("%q: %v", method, err)
		}
	}
	expect(t, "passkey with a code, and no passkey", try("passkey", f.code(t, seed, 0)), fault.PasskeyNotCompleted)
	expect(t, "fresh", f.Fresh(t.Context(), ann), fault.VerificationRequired)
}
