package identity

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestACeremonyIsBoundToItsOwnerAndPurpose(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, other := f.newAccount(t, user, false), f.newAccount(t, user, false)
	v, _ := f.withPasskey(t, ann)
	ctx := t.Context()

	// Replayed, after a success and after a failure.
	options := f.beginVerification(t, ann)
	answer := v.get(t, options)
	expect(t, "a verification", f.finishVerification(t, ann, answer), "")
	expect(t, "the same answer again", f.finishVerification(t, ann, answer), fault.PasskeyNotCompleted)
	options = f.beginVerification(t, ann)
	expect(t, "invalid JSON", f.finishVerification(t, ann, []byte(`{}`)), fault.InvalidParameter)
	expect(t, "the right answer after invalid JSON", f.finishVerification(t, ann, v.get(t, options)), fault.PasskeyNotCompleted)

	// Another session of the same user.
	options = f.beginVerification(t, ann)
	expect(t, "another session", f.finishVerification(t, other, v.get(t, options)), fault.PasskeyNotCompleted)
	f.beginVerification(t, other)
	expect(t, "another session with a ceremony of its own", f.finishVerification(t, other, v.get(t, options)), fault.VerificationFailed)

	// Another purpose.
	options, ceremony, err := f.BeginPasskeyLogin(ctx, here)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "a verification with the challenge of a log-in", f.finishVerification(t, other, v.get(t, options)), fault.PasskeyNotCompleted)
	toVerify := f.beginVerification(t, ann)
	_, err = f.FinishPasskeyLogin(ctx, here, ceremony.Reveal(), v.get(t, toVerify), testDevice, testTerms)
	expect(t, "a log-in with the challenge of a verification", err, fault.VerificationFailed)
	_, err = f.FinishPasskeyLogin(ctx, here, ann.Credential, v.get(t, toVerify), testDevice, testTerms)
	expect(t, "a log-in by the id of a session", err, fault.PasskeyNotCompleted)
	toRegister := f.beginRegistration(t, ann, "")
	expect(t, "a verification with the challenge of a registration", f.finishVerification(t, ann, v.get(t, toRegister)), fault.VerificationFailed)

	// Another user with the same credential.
	bob := f.newAccount(t, f.user(t, "bob"), false)
	bobs, _ := f.withPasskey(t, bob)
	mixed := &Account{UserID: bob.UserID, UserName: "bob", Credential: ann.Credential, Session: true}
	options = f.beginVerification(t, ann)
	expect(t, "another user with the same credential", f.finishVerification(t, mixed, bobs.get(t, options)), fault.PasskeyNotCompleted)

	// Another browser, or none.
	options, _, err = f.BeginPasskeyLogin(ctx, here)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"", strings.Repeat("x", 43), ceremony.Reveal()} {
		_, err = f.FinishPasskeyLogin(ctx, here, secret, v.get(t, options), testDevice, testTerms)
		expect(t, "a log-in by another browser", err, fault.PasskeyNotCompleted)
	}
}

func TestACeremonyIsAnsweredOnceInParallel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	v := newDevice()
	created := v.create(t, f.beginRegistration(t, ann, ""))
	var won atomic.Value // the new secret of the session
	by := func(renewed Secret, err error) error {
		if err == nil {
			won.Store(renewed)
		}
		return err
	}
	useSecret := func() { ann.setSecret(won.Load().(Secret)) }
	ended := countResults(10, func(int) error {
		_, renewed, err := f.FinishPasskey(t.Context(), here, ann, created)
		return by(renewed, err)
	})
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("a registration finished ten times in parallel: %v", ended)
	}
	useSecret()
	answer := v.get(t, f.beginVerification(t, ann))
	ended = countResults(10, func(int) error { return by(f.FinishPasskeyVerify(t.Context(), here, ann, answer)) })
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("a verification finished ten times in parallel: %v", ended)
	}
	useSecret()
	ended = countResults(10, func(int) error {
		_, renewed, err := f.Verify(t.Context(), ann, factor.MethodPasskey, "", time.Minute)
		return by(renewed, err)
	})
	if ended["done"] != 1 || ended[fault.NotLoggedIn]+ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("one assertion verified ten times concurrently: %v", ended)
	}
	program := f.tokenAccount(t, User{ID: ann.UserID})
	expect(t, "a token: finished", f.completeVerification(t, program, v), "")
	ended = countResults(10, func(int) error { return f.verifyByPasskey(t, program) })
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("the assertion of a token verified ten times concurrently: %v", ended)
	}
	options, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	answer = v.get(t, options)
	ended = countResults(10, func(int) error {
		return second(f.FinishPasskeyLogin(t.Context(), here, ceremony.Reveal(), answer, testDevice, testTerms))
	})
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("a log-in finished ten times in parallel: %v", ended)
	}
}

func TestACeremonyExpiresAfterTwoMinutes(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]fault.Code{2*time.Minute - time.Second: "", 2 * time.Minute: fault.PasskeyNotCompleted} {
		f := newFixture(t)
		ann := f.newAccount(t, f.user(t, "ann"), false)
		v := newDevice()
		toRegister := f.beginRegistration(t, ann, "")
		f.clock.Advance(wait)
		expect(t, fmt.Sprintf("a registration after %v", wait), f.finishRegistration(t, ann, v.create(t, toRegister)), want)
		if want != "" {
			f.registerPasskey(t, ann, v)
		}
		toVerify := f.beginVerification(t, ann)
		toLogIn, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(wait)
		expect(t, fmt.Sprintf("a verification after %v", wait), f.finishVerification(t, ann, v.get(t, toVerify)), want)
		_, err = f.FinishPasskeyLogin(t.Context(), here, ceremony.Reveal(), v.get(t, toLogIn), testDevice, testTerms)
		expect(t, fmt.Sprintf("a log-in after %v", wait), err, want)
	}
}

// TestAnEarlierSecretCannotUseAPasskeyAssertion: a thief of the cookie without a passkey must not
// use the assertion that the owner's passkey has just made.
func TestAnEarlierSecretCannotUseAPasskeyAssertion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	v, _ := f.withPasskey(t, ann)
	thief := *ann
	for n := range 20 {
		expect(t, fmt.Sprintf("the %dth failed attempt", n+1), f.verifyByPasskey(t, &thief), fault.PasskeyNotCompleted)
	}
	err := f.verifyByPasskey(t, &thief)
	expect(t, "one attempt more", err, fault.TooManyAttempts)
	if retryAfter(err) != userWindow {
		t.Errorf("RetryAfter is %v", retryAfter(err))
	}
	expect(t, "the owner answers", f.completeVerification(t, ann, v), "")
	expect(t, "the thief", f.verifyByPasskey(t, &thief), fault.NotLoggedIn)
	expect(t, "the owner, after the thief's attempts", f.verifyByPasskey(t, ann), "")
	expect(t, "the thief, afterwards", f.Fresh(t.Context(), &thief), fault.NotLoggedIn)
	expect(t, "the owner, afterwards", f.Fresh(t.Context(), ann), "")
}

func TestVerifyingByPasskeyNeedsAnAssertionOfTheSameCredential(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, other, program := f.newAccount(t, user, false), f.newAccount(t, user, false), f.tokenAccount(t, user)
	v, passkey := f.withPasskey(t, ann)
	expect(t, "before it is begun", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	options := f.beginVerification(t, ann)
	expect(t, "before it is finished", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	expect(t, "finished", f.finishVerification(t, ann, v.get(t, options)), "")
	expect(t, "another session", f.verifyByPasskey(t, other), fault.PasskeyNotCompleted)
	expect(t, "finished is not verified", f.Fresh(t.Context(), ann), fault.VerificationRequired)
	expires, renewed, err := f.Verify(t.Context(), ann, "passkey", "not looked at", 300*time.Second)
	if err != nil || expires != f.clock.Now().Unix()+300 || renewed == "" {
		t.Errorf("%d, %v, %v", expires, renewed != "", err)
	}
	ann.setSecret(renewed)
	expect(t, "verified", f.Fresh(t.Context(), ann), "")
	expect(t, "twice", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)

	for wait, want := range map[time.Duration]fault.Code{59 * time.Second: "", time.Minute: fault.PasskeyNotCompleted, 61 * time.Second: fault.PasskeyNotCompleted} {
		expect(t, "finished", f.completeVerification(t, ann, v), "")
		f.clock.Advance(wait)
		expect(t, fmt.Sprintf("after %v", wait), f.verifyByPasskey(t, ann), want)
	}
	expect(t, "a token: finished", f.completeVerification(t, program, v), "")
	expect(t, "a session by the assertion of the token", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	expect(t, "the token", f.verifyByPasskey(t, program), "")

	// Ending the step-ups of a user also deletes the assertions.
	expect(t, "finished", f.completeVerification(t, ann, v), "")
	if err := f.store.Update(t.Context(), func(txn storage.Txn) error { return factor.EndStepUps(txn, user.ID) }); err != nil {
		t.Fatal(err)
	}
	expect(t, "after all step-ups were ended", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	expect(t, "a token: finished", f.completeVerification(t, program, v), "")
	expect(t, "the token, verified", f.verifyByPasskey(t, program), "")

	// The answer of a passkey that was removed meanwhile does not count.
	expect(t, "finished", f.completeVerification(t, ann, v), "")
	if _, err := f.RemovePasskey(t.Context(), program, passkey.ID); err != nil {
		t.Fatal(err)
	}
	f.withPasskey(t, other) // the user still has another factor
	expect(t, "by a passkey that was removed", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
}
