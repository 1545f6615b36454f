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

func TestACeremonyIsAnsweredOnceByItsOwnerForItsPurpose(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, other := f.comes(t, user, false), f.comes(t, user, false)
	v, _ := f.withPasskey(t, ann)
	ctx := t.Context()

	// Replayed, after a success and after a failure.
	options := f.asked(t, ann)
	answer := v.get(t, options)
	expect(t, "a verification", f.answers(t, ann, answer), "")
	expect(t, "the same answer again", f.answers(t, ann, answer), fault.PasskeyNotCompleted)
	options = f.asked(t, ann)
	expect(t, "junk", f.answers(t, ann, []byte(`{}`)), fault.InvalidParameter)
	expect(t, "the right answer after junk", f.answers(t, ann, v.get(t, options)), fault.PasskeyNotCompleted)

	// Another session of the same user.
	options = f.asked(t, ann)
	expect(t, "another session", f.answers(t, other, v.get(t, options)), fault.PasskeyNotCompleted)
	f.asked(t, other)
	expect(t, "another session with a ceremony of its own", f.answers(t, other, v.get(t, options)), fault.VerificationFailed)

	// Another purpose.
	options, ceremony, err := f.BeginPasskeyLogin(ctx, here)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "a log-in's challenge to verify by", f.answers(t, other, v.get(t, options)), fault.PasskeyNotCompleted)
	toVerify := f.asked(t, ann)
	_, err = f.FinishPasskeyLogin(ctx, here, ceremony.Reveal(), v.get(t, toVerify), testDevice, testTerms)
	expect(t, "a verification's challenge to log in by", err, fault.VerificationFailed)
	_, err = f.FinishPasskeyLogin(ctx, here, ann.Credential, v.get(t, toVerify), testDevice, testTerms)
	expect(t, "a log-in by the id of a session", err, fault.PasskeyNotCompleted)
	toRegister := f.askForPasskeyOf(t, ann, "")
	expect(t, "a registration's challenge to verify by", f.answers(t, ann, v.get(t, toRegister)), fault.VerificationFailed)

	// Another user, though by the same credential.
	bob := f.comes(t, f.user(t, "bob"), false)
	bobs, _ := f.withPasskey(t, bob)
	mixed := &Account{UserID: bob.UserID, UserName: "bob", Credential: ann.Credential, Session: true}
	options = f.asked(t, ann)
	expect(t, "another user by the same credential", f.answers(t, mixed, bobs.get(t, options)), fault.PasskeyNotCompleted)

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

func TestACeremonyIsAnsweredOnceAlsoInParallel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	v := newDevice()
	made := v.create(t, f.askForPasskeyOf(t, ann, ""))
	var won atomic.Value // the new secret of the session
	by := func(renewed Secret, err error) error {
		if err == nil {
			won.Store(renewed)
		}
		return err
	}
	goesOn := func() { ann.goesOn(won.Load().(Secret)) }
	ended := tally(10, func(int) error {
		_, renewed, err := f.FinishPasskey(t.Context(), here, ann, made)
		return by(renewed, err)
	})
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("a registration finished ten times at once: %v", ended)
	}
	goesOn()
	answer := v.get(t, f.asked(t, ann))
	ended = tally(10, func(int) error { return by(f.FinishPasskeyVerify(t.Context(), here, ann, answer)) })
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("a verification finished ten times at once: %v", ended)
	}
	goesOn()
	ended = tally(10, func(int) error {
		_, renewed, err := f.Verify(t.Context(), ann, factor.MethodPasskey, "", time.Minute)
		return by(renewed, err)
	})
	if ended["done"] != 1 || ended[fault.NotLoggedIn]+ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("one assertion verified ten times at once: %v", ended)
	}
	program := f.program(t, User{ID: ann.UserID})
	expect(t, "a token: finished", f.answered(t, program, v), "")
	ended = tally(10, func(int) error { return f.verifyByPasskey(t, program) })
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("the assertion of a token verified ten times at once: %v", ended)
	}
	options, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	answer = v.get(t, options)
	ended = tally(10, func(int) error {
		return second(f.FinishPasskeyLogin(t.Context(), here, ceremony.Reveal(), answer, testDevice, testTerms))
	})
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("a log-in finished ten times at once: %v", ended)
	}
}

func TestAPasskeyHasTwoMinutesToAnswer(t *testing.T) {
	t.Parallel()
	for passes, want := range map[time.Duration]fault.Code{2*time.Minute - time.Second: "", 2 * time.Minute: fault.PasskeyNotCompleted} {
		f := newFixture(t)
		ann := f.comes(t, f.user(t, "ann"), false)
		v := newDevice()
		toRegister := f.askForPasskeyOf(t, ann, "")
		f.clock.Advance(passes)
		expect(t, fmt.Sprintf("a registration after %v", passes), f.makes(t, ann, v.create(t, toRegister)), want)
		if want != "" {
			f.registered(t, ann, v)
		}
		toVerify := f.asked(t, ann)
		toLogIn, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(passes)
		expect(t, fmt.Sprintf("a verification after %v", passes), f.answers(t, ann, v.get(t, toVerify)), want)
		_, err = f.FinishPasskeyLogin(t.Context(), here, ceremony.Reveal(), v.get(t, toLogIn), testDevice, testTerms)
		expect(t, fmt.Sprintf("a log-in after %v", passes), err, want)
	}
}

// A thief of the cookie without a passkey must not use the assertion that the owner's passkey has
// just made.
func TestAPasskeyAssertionIsNotUsedByTheEarlierSecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.comes(t, f.user(t, "ann"), false)
	v, _ := f.withPasskey(t, ann)
	thief := *ann
	for n := range 20 {
		expect(t, fmt.Sprintf("the %dth time in vain", n+1), f.verifyByPasskey(t, &thief), fault.PasskeyNotCompleted)
	}
	err := f.verifyByPasskey(t, &thief)
	expect(t, "once more", err, fault.TooManyAttempts)
	if retryAfter(err) != userWindow {
		t.Errorf("again after %v", retryAfter(err))
	}
	expect(t, "the owner answers", f.answered(t, ann, v), "")
	expect(t, "the thief", f.verifyByPasskey(t, &thief), fault.NotLoggedIn)
	expect(t, "the owner, whom the thief's attempts do not block", f.verifyByPasskey(t, ann), "")
	expect(t, "the thief, then", f.Fresh(t.Context(), &thief), fault.NotLoggedIn)
	expect(t, "the owner, then", f.Fresh(t.Context(), ann), "")
}

func TestVerifyingByPasskeyTakesAFinishedCeremonyOfTheSameCredential(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, other, program := f.comes(t, user, false), f.comes(t, user, false), f.program(t, user)
	v, passkey := f.withPasskey(t, ann)
	expect(t, "before it is begun", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	options := f.asked(t, ann)
	expect(t, "before it is finished", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	expect(t, "finished", f.answers(t, ann, v.get(t, options)), "")
	expect(t, "another session", f.verifyByPasskey(t, other), fault.PasskeyNotCompleted)
	expect(t, "finished is not verified", f.Fresh(t.Context(), ann), fault.VerificationRequired)
	expires, renewed, err := f.Verify(t.Context(), ann, "passkey", "not looked at", 300*time.Second)
	if err != nil || expires != f.clock.Now().Unix()+300 || renewed == "" {
		t.Errorf("%d, %v, %v", expires, renewed != "", err)
	}
	ann.goesOn(renewed)
	expect(t, "verified", f.Fresh(t.Context(), ann), "")
	expect(t, "twice", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)

	for passes, want := range map[time.Duration]fault.Code{59 * time.Second: "", time.Minute: fault.PasskeyNotCompleted, 61 * time.Second: fault.PasskeyNotCompleted} {
		expect(t, "finished", f.answered(t, ann, v), "")
		f.clock.Advance(passes)
		expect(t, fmt.Sprintf("after %v", passes), f.verifyByPasskey(t, ann), want)
	}
	expect(t, "a token: finished", f.answered(t, program, v), "")
	expect(t, "a session by the assertion of the token", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	expect(t, "the token", f.verifyByPasskey(t, program), "")

	// Ending the step-ups of a user also deletes the assertions.
	expect(t, "finished", f.answered(t, ann, v), "")
	if err := f.store.Update(t.Context(), func(txn storage.Txn) error { return factor.EndStepUps(txn, user.ID) }); err != nil {
		t.Fatal(err)
	}
	expect(t, "after all step-ups were ended", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	expect(t, "a token: finished", f.answered(t, program, v), "")
	expect(t, "the token, verified", f.verifyByPasskey(t, program), "")

	// The answer of a passkey that was removed meanwhile does not count.
	expect(t, "finished", f.answered(t, ann, v), "")
	if _, err := f.RemovePasskey(t.Context(), program, passkey.ID); err != nil {
		t.Fatal(err)
	}
	f.withPasskey(t, other) // the user still has another factor
	expect(t, "by a passkey that was removed", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
}
