package identity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestACeremonyIsAnsweredOnceByWhoBeganItForWhatItIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann, other := f.comes(t, user, false), f.comes(t, user, false)
	v, _ := f.withPasskey(t, ann)
	ctx := t.Context()

	// Replayed, after a success and after a failure.
	options := f.asked(t, ann)
	answer := v.get(t, options)
	expect(t, "a verification", f.FinishPasskeyVerify(ctx, here, ann, answer), "")
	expect(t, "the same answer again", f.FinishPasskeyVerify(ctx, here, ann, answer), fault.PasskeyNotCompleted)
	options = f.asked(t, ann)
	expect(t, "junk", f.FinishPasskeyVerify(ctx, here, ann, []byte(`{}`)), fault.InvalidParameter)
	expect(t, "the right answer after junk", f.FinishPasskeyVerify(ctx, here, ann, v.get(t, options)), fault.PasskeyNotCompleted)

	// Another session of the same user.
	options = f.asked(t, ann)
	expect(t, "another session", f.FinishPasskeyVerify(ctx, here, other, v.get(t, options)), fault.PasskeyNotCompleted)
	f.asked(t, other)
	expect(t, "another session with a ceremony of its own", f.FinishPasskeyVerify(ctx, here, other, v.get(t, options)), fault.VerificationFailed)

	// Another purpose.
	options, ceremony, err := f.BeginPasskeyLogin(ctx, here)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "a log-in's challenge to verify by", f.FinishPasskeyVerify(ctx, here, other, v.get(t, options)), fault.PasskeyNotCompleted)
	toVerify := f.asked(t, ann)
	_, err = f.FinishPasskeyLogin(ctx, here, ceremony.Reveal(), v.get(t, toVerify), testDevice, testTerms)
	expect(t, "a verification's challenge to log in by", err, fault.VerificationFailed)
	_, err = f.FinishPasskeyLogin(ctx, here, ann.Credential, v.get(t, toVerify), testDevice, testTerms)
	expect(t, "a log-in by the id of a session", err, fault.PasskeyNotCompleted)
	toRegister := f.askForPasskeyOf(t, ann, "")
	expect(t, "a registration's challenge to verify by", f.FinishPasskeyVerify(ctx, here, ann, v.get(t, toRegister)), fault.VerificationFailed)

	// Another user, though by the same credential.
	bob := f.comes(t, f.user(t, "bob"), false)
	his, _ := f.withPasskey(t, bob)
	mixed := &Account{UserID: bob.UserID, UserName: "bob", Credential: ann.Credential, Session: true}
	options = f.asked(t, ann)
	expect(t, "another user by the same credential", f.FinishPasskeyVerify(ctx, here, mixed, his.get(t, options)), fault.PasskeyNotCompleted)

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
	ended := tally(10, func(int) error { return third(f.FinishPasskey(t.Context(), here, ann, made)) })
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("a registration finished ten times at once: %v", ended)
	}
	answer := v.get(t, f.asked(t, ann))
	ended = tally(10, func(int) error { return f.FinishPasskeyVerify(t.Context(), here, ann, answer) })
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("a verification finished ten times at once: %v", ended)
	}
	ended = tally(10, func(int) error { return f.verifyByPasskey(t, ann) })
	if ended["done"] != 1 || ended[fault.PasskeyNotCompleted] != 9 {
		t.Errorf("one mark verified ten times at once: %v", ended)
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
		f.clock.pass(passes)
		expect(t, fmt.Sprintf("a registration after %v", passes), third(f.FinishPasskey(t.Context(), here, ann, v.create(t, toRegister))), want)
		if want != "" {
			f.registered(t, ann, v)
		}
		toVerify := f.asked(t, ann)
		toLogIn, ceremony, err := f.BeginPasskeyLogin(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		f.clock.pass(passes)
		expect(t, fmt.Sprintf("a verification after %v", passes), f.FinishPasskeyVerify(t.Context(), here, ann, v.get(t, toVerify)), want)
		_, err = f.FinishPasskeyLogin(t.Context(), here, ceremony.Reveal(), v.get(t, toLogIn), testDevice, testTerms)
		expect(t, fmt.Sprintf("a log-in after %v", passes), err, want)
	}
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
	expect(t, "finished", f.FinishPasskeyVerify(t.Context(), here, ann, v.get(t, options)), "")
	expect(t, "another session", f.verifyByPasskey(t, other), fault.PasskeyNotCompleted)
	expect(t, "finished is not verified", f.Fresh(t.Context(), ann), fault.VerificationRequired)
	expires, renewed, err := f.Verify(t.Context(), ann, "passkey", "not looked at", 300*time.Second)
	if err != nil || expires != f.clock.Now().Unix()+300 || renewed == "" {
		t.Errorf("%d, %v, %v", expires, renewed != "", err)
	}
	expect(t, "verified", f.Fresh(t.Context(), ann), "")
	expect(t, "twice", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)

	for passes, want := range map[time.Duration]fault.Code{59 * time.Second: "", time.Minute: fault.PasskeyNotCompleted, 61 * time.Second: fault.PasskeyNotCompleted} {
		expect(t, "finished", f.answered(t, ann, v), "")
		f.clock.pass(passes)
		expect(t, fmt.Sprintf("after %v", passes), f.verifyByPasskey(t, ann), want)
	}
	expect(t, "a token: finished", f.answered(t, program, v), "")
	expect(t, "a session by the mark of the token", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	expect(t, "the token", f.verifyByPasskey(t, program), "")

	// What is dropped for all of a user's credentials takes the marks along.
	expect(t, "finished", f.answered(t, ann, v), "")
	if err := f.store.Update(t.Context(), func(txn storage.Txn) error { return dropStamps(txn, user.ID) }); err != nil {
		t.Fatal(err)
	}
	expect(t, "after all stamps were dropped", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
	expect(t, "a token: finished", f.answered(t, program, v), "")
	expect(t, "the token, verified", f.verifyByPasskey(t, program), "")

	// A passkey that was removed meanwhile has not answered.
	expect(t, "finished", f.answered(t, ann, v), "")
	if _, err := f.RemovePasskey(t.Context(), program, passkey.ID); err != nil {
		t.Fatal(err)
	}
	f.withPasskey(t, other) // so that there is a factor at all
	expect(t, "by a passkey that was removed", f.verifyByPasskey(t, ann), fault.PasskeyNotCompleted)
}
