package identity

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
)

const testKeyText = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// testKeyring is the keyring of all tests, so that a store can be opened again with the
// same key.
var testKeyring = func() *seal.Keyring {
	k, err := seal.FromTexts(testKeyText)
	if err != nil {
		panic(err)
	}
	return k
}()

// openEntry opens a session for a user, as a log-in does, and returns its entry.
func (f fixture) openEntry(t testing.TB, user User, half bool) Entry {
	t.Helper()
	var entry Entry
	err := f.store.Update(t.Context(), func(txn storage.Txn) (err error) {
		entry, err = f.openSession(txn, user.ID, testDevice, Terms{Idle: 24 * time.Hour, Lifetime: 24 * time.Hour}, half)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// newAccount returns the account of a new session of a user.
func (f fixture) newAccount(t testing.TB, user User, half bool) *Account {
	t.Helper()
	return f.openEntry(t, user, half).Account
}

// setSecret sets the new secret of the account's session, as a browser sets the new cookie. It is
// empty for an access token.
func (a *Account) setSecret(renewed Secret) {
	if renewed != "" {
		a.secret, _ = credential.HashPlain(renewed.Reveal())
	}
}

// tokenAccount returns the account of a user's access token.
func (f fixture) tokenAccount(t testing.TB, user User) *Account {
	t.Helper()
	account, ok := f.AuthenticateToken(f.token(t, user.ID))
	if !ok {
		t.Fatal("the token is not in force")
	}
	return account
}

// prepareEnrolment reports whether an account has no factor yet. Otherwise it grants a step-up, so
// that the account may add another factor.
func (f fixture) prepareEnrolment(t testing.TB, a *Account) (first bool) {
	t.Helper()
	err := f.store.Update(t.Context(), func(txn storage.Txn) error {
		due, err := factor.Due(txn, a.UserID)
		if first = due == nil; err != nil || first {
			return err
		}
		return factor.GrantStepUp(txn, a.holder(), due[0], f.clock.Now().Unix()+300)
	})
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// withTOTP turns on TOTP for an account, and returns the seed as base32 and the
// backup codes. It advances the clock by a step, past the used code.
func (f fixture) withTOTP(t testing.TB, a *Account) (seed string, codes []string) {
	t.Helper()
	enrolment, err := f.factors.SetUpTOTP(t.Context(), a.holder(), "Gate", f.prepareEnrolment(t, a))
	if err != nil {
		t.Fatal(err)
	}
	seed = enrolment.Secret.Reveal()
	secrets, renewed, err := f.EnableTOTP(t.Context(), a, f.code(t, seed, 0))
	if err != nil {
		t.Fatal(err)
	}
	a.setSecret(renewed)
	for _, s := range secrets {
		codes = append(codes, s.Reveal())
	}
	f.clock.Advance(30 * time.Second)
	return seed, codes
}

// code returns the code of an authenticator app, some steps from now.
func (f fixture) code(t testing.TB, seed string, steps int) string {
	t.Helper()
	code, err := totp.GenerateCode(seed, f.clock.Now().Add(time.Duration(steps)*30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// wrongCode returns a code that differs from all codes around now.
func (f fixture) wrongCode(t testing.TB, seed string) string {
	t.Helper()
	for n := range 10 {
		code := fmt.Sprintf("%06d", n)
		if code != f.code(t, seed, -1) && code != f.code(t, seed, 0) && code != f.code(t, seed, 1) {
			return code
		}
	}
	panic("unreachable")
}

// enableTOTP finishes the enrolment of TOTP.
func (f fixture) enableTOTP(t testing.TB, a *Account, code string) error {
	t.Helper()
	_, renewed, err := f.EnableTOTP(t.Context(), a, code)
	a.setSecret(renewed)
	return err
}

// verify verifies an account by a code.
func (f fixture) verify(t testing.TB, a *Account, code string) error {
	t.Helper()
	_, renewed, err := f.Verify(t.Context(), a, factor.MethodCode, code, 300*time.Second)
	a.setSecret(renewed)
	return err
}

func expect(t *testing.T, what string, err error, want fault.Code) {
	t.Helper()
	if got := codeOf(err); got != want || (err == nil) != (want == "") {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// countResults runs do n times concurrently and counts the results by fault code.
func countResults(n int, do func(i int) error) map[fault.Code]int {
	ended := make(map[fault.Code]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			err := do(i)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ended["done"]++
			} else {
				ended[codeOf(err)]++
			}
		})
	}
	close(start)
	all.Wait()
	return ended
}

// contents returns the whole content of the store as text.
func (f fixture) contents(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		return r.Scan(nil, nil, func(key, val []byte) bool {
			fmt.Fprintf(&all, "%s %s\n", key, val)
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestResetFactorsRemovesAllFactors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.newAccount(t, user, false)
	seed, _ := f.withTOTP(t, ann)
	expect(t, "verified", f.verify(t, ann, f.code(t, seed, 0)), "")
	if err := f.ResetFactors(t.Context(), "operator", "unknown"); codeOf(err) != fault.NotFound {
		t.Errorf("reset of an unknown user: %v", err)
	}
	if err := f.ResetFactors(t.Context(), "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	if has, err := f.Factors(t.Context(), ann.UserID); err != nil || has.TOTP || has.BackupCodes != 0 {
		t.Errorf("%+v, %v", has, err)
	}
	if err := f.Fresh(t.Context(), ann); err != nil {
		t.Errorf("a user without a factor needs a step-up: %v", err)
	}
	f.withTOTP(t, ann)
	expect(t, "the step-up of a factor that was reset", f.Fresh(t.Context(), ann), fault.VerificationRequired)
	events, _, err := f.Audit.Activity(t.Context(), user.ID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var recorded bool
	for _, e := range events {
		recorded = recorded || e.Action == "user.reset_2fa" && e.Actor == "operator"
	}
	if !recorded {
		t.Errorf("the reset has no event: %+v", events)
	}
}

// TestAnEnrolmentAsFirstFactorFailsAfterAnother has a thief of the password and a session. The thief
// must not finish an enrolment that began before the owner set up a factor.
func TestAnEnrolmentAsFirstFactorFailsAfterAnother(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(f fixture, a *Account) (finish func() error){
		"TOTP": func(f fixture, a *Account) func() error {
			enrolment, err := f.SetUpTOTP(t.Context(), a, goodPassword, "Gate")
			if err != nil {
				t.Fatal(err)
			}
			return func() error {
				return f.enableTOTP(t, a, f.code(t, enrolment.Secret.Reveal(), 0))
			}
		},
		"a passkey": func(f fixture, a *Account) func() error {
			options, err := f.BeginPasskey(t.Context(), here, a, goodPassword, "")
			if err != nil {
				t.Fatal(err)
			}
			return func() error { return f.finishRegistration(t, a, newDevice().create(t, options)) }
		},
	}
	for _, c := range []struct {
		begun, since string
		alone        fault.Code // the result if the other factor was removed again
	}{
		{"a passkey", "TOTP", fault.PasskeyNotCompleted},
		{"a passkey", "a passkey", fault.PasskeyNotCompleted},
		{"TOTP", "a passkey", fault.NoFactor},
	} {
		f := newPeople(t)
		user := f.userWithPassword(t, "ann")
		thief, ann := f.newAccount(t, user, false), f.newAccount(t, user, false)
		what := fmt.Sprintf("%s, begun before %s", c.begun, c.since)
		late := kinds[c.begun](f, thief)
		// The step-up is by a factor that was removed since.
		err := f.store.Update(t.Context(), func(txn storage.Txn) error {
			return factor.GrantStepUp(txn, thief.holder(), factor.MethodPasskey, f.clock.Now().Unix()+300)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := kinds[c.since](f, ann)(); err != nil {
			t.Fatal(err)
		}
		err = late()
		expect(t, what, err, fault.VerificationRequired)
		if err != nil && !strings.Contains(err.Error(), "was set up since") {
			t.Errorf("%s: %v does not give the reason", what, err)
		}
		if due := f.due(t, user); len(due) != 1 {
			t.Errorf("%s: the user has %v now", what, due)
		}
		expect(t, what+", verified by an earlier proof", f.Fresh(t.Context(), thief), fault.VerificationRequired)

		// The step-up has ended and does not come back.
		f = newPeople(t)
		user = f.userWithPassword(t, "ann")
		thief, ann = f.newAccount(t, user, false), f.newAccount(t, user, false)
		late = kinds[c.begun](f, thief)
		if err := kinds[c.since](f, ann)(); err != nil {
			t.Fatal(err)
		}
		f.removeFactors(t, user)
		expect(t, what+", which was removed again", late(), c.alone)
	}
}

func TestOnlyOneConcurrentFirstFactorSucceeds(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	user := f.userWithPassword(t, "ann")
	const n = 8
	var accounts [n]*Account
	var answers [n][]byte
	for i := range n {
		accounts[i] = f.newAccount(t, user, false)
		options, err := f.BeginPasskey(t.Context(), here, accounts[i], goodPassword, "")
		if err != nil {
			t.Fatal(err)
		}
		answers[i] = newDevice().create(t, options)
	}
	ended := countResults(n, func(i int) error { return third(f.FinishPasskey(t.Context(), here, accounts[i], answers[i])) })
	if ended["done"] != 1 || ended[fault.VerificationRequired] != n-1 {
		t.Errorf("%v", ended)
	}
	if due := f.due(t, user); len(due) != 1 {
		t.Errorf("the user has %v", due)
	}
}

// due returns the factors of a user.
func (f fixture) due(t testing.TB, user User) (due []string) {
	t.Helper()
	err := f.store.View(t.Context(), func(r storage.Reader) (err error) {
		due, err = factor.Due(r, user.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return due
}

// removeFactors removes the factors of a user and keeps the epoch of the factors.
func (f fixture) removeFactors(t testing.TB, user User) {
	t.Helper()
	err := f.store.Update(t.Context(), func(txn storage.Txn) error {
		totp, err := factor.TOTPTable.GetOrZero(txn, user.ID)
		if err != nil {
			return err
		}
		totp.UserID, totp.Seed = user.ID, nil
		if err := factor.TOTPTable.Put(txn, nil, totp); err != nil {
			return err
		}
		for passkey, err := range factor.PasskeyTable.Scan(txn, factor.PasskeyTable.Under(user.ID)) {
			if err != nil {
				return err
			}
			if err := factor.PasskeyTable.Put(txn, passkey, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAFurtherFactorNeedsAStepUpInForce lets step-ups expire or end before a factor is added.
func TestAFurtherFactorNeedsAStepUpInForce(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]fault.Code{59 * time.Second: "", time.Minute: fault.VerificationExpired} {
		f := newPeople(t)
		ann := f.newAccount(t, f.userWithPassword(t, "ann"), false)
		v, _ := f.withPasskey(t, ann)
		expect(t, "answered", f.completeVerification(t, ann, v), "")
		expect(t, "verified, for 300 s", f.verifyByPasskey(t, ann), "")
		f.clock.Advance(240 * time.Second)
		enrolment, err := f.SetUpTOTP(t.Context(), ann, "", "Gate")
		if err != nil {
			t.Fatal(err)
		}
		options, err := f.BeginPasskey(t.Context(), here, ann, "", "")
		if err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(wait)
		expect(t, fmt.Sprintf("a passkey after %v", wait), f.finishRegistration(t, ann, newDevice().create(t, options)), want)
		code := f.code(t, enrolment.Secret.Reveal(), 0)
		next := want
		if want == "" { // the passkey was a change of the factors, which ends the verification
			next = fault.VerificationRequired
		}
		expect(t, fmt.Sprintf("TOTP after %v", wait), f.enableTOTP(t, ann, code), next)
		if want == "" {
			continue
		}
		// The refusal did not count as an attempt, and the code is still valid.
		expect(t, "answered", f.completeVerification(t, ann, v), "")
		expect(t, "verified", f.verifyByPasskey(t, ann), "")
		expect(t, "TOTP, verified again", f.enableTOTP(t, ann, code), "")
	}
}
