package identity

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
)

const testKeyText = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// testKeyring is the one of all tests: a store that is opened again is opened
// by the same key.
var testKeyring = func() *seal.Keyring {
	k, err := seal.FromTexts(testKeyText)
	if err != nil {
		panic(err)
	}
	return k
}()

// enters opens a session for a user, as a log-in does.
func (f fixture) enters(t testing.TB, user User, half bool) Entry {
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

// comes returns the account of a session like that.
func (f fixture) comes(t testing.TB, user User, half bool) *Account {
	t.Helper()
	return f.enters(t, user, half).Account
}

// program returns the account of a user's access token.
func (f fixture) program(t testing.TB, user User) *Account {
	t.Helper()
	account, ok := f.AuthenticateToken(f.token(t, user.ID))
	if !ok {
		t.Fatal("the token is not in force")
	}
	return account
}

// withTOTP turns on TOTP for an account, and returns the seed as base32 and the
// backup codes. The code that it took is behind: the clock goes on by a step.
func (f fixture) withTOTP(t testing.TB, a *Account) (seed string, codes []string) {
	t.Helper()
	enrolment, err := f.enrolTOTP(t.Context(), a, "Gate")
	if err != nil {
		t.Fatal(err)
	}
	seed = enrolment.Secret.Reveal()
	secrets, _, err := f.EnableTOTP(t.Context(), a, f.code(t, seed, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		codes = append(codes, s.Reveal())
	}
	f.clock.pass(stepSeconds * time.Second)
	return seed, codes
}

// code returns what an authenticator app shows, steps away from now.
func (f fixture) code(t testing.TB, seed string, steps int) string {
	t.Helper()
	code, err := totp.GenerateCode(seed, f.clock.Now().Add(time.Duration(steps)*stepSeconds*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// wrong returns a code that is none of those around now.
func (f fixture) wrong(t testing.TB, seed string) string {
	t.Helper()
	for n := range 10 {
		code := fmt.Sprintf("%06d", n)
		if code != f.code(t, seed, -1) && code != f.code(t, seed, 0) && code != f.code(t, seed, 1) {
			return code
		}
	}
	panic("unreachable")
}

// verify verifies an account by a code.
func (f fixture) verify(t testing.TB, a *Account, code string) error {
	t.Helper()
	_, _, err := f.Verify(t.Context(), a, methodCode, code, 300*time.Second)
	return err
}

func expect(t *testing.T, what string, err error, want fault.Code) {
	t.Helper()
	if got := codeOf(err); got != want || (err == nil) != (want == "") {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// tally runs n things at once and counts how they ended, by code.
func tally(n int, do func(i int) error) map[fault.Code]int {
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

// contents returns all that is in the store, as text.
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

func TestAnOperatorsResetTakesAwayAllFactors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.comes(t, user, false)
	seed, _ := f.withTOTP(t, ann)
	expect(t, "verified", f.verify(t, ann, f.code(t, seed, 0)), "")
	if err := f.ResetFactors(t.Context(), "operator", "nobody"); codeOf(err) != fault.NotFound {
		t.Errorf("reset of nobody: %v", err)
	}
	if err := f.ResetFactors(t.Context(), "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	if has, err := f.Factors(t.Context(), ann.UserID); err != nil || has.TOTP || has.BackupCodes != 0 {
		t.Errorf("%+v, %v", has, err)
	}
	if err := f.Fresh(t.Context(), ann); err != nil {
		t.Errorf("one without a factor is asked for it: %v", err)
	}
	f.withTOTP(t, ann)
	expect(t, "the stamp of a factor that was reset", f.Fresh(t.Context(), ann), fault.VerificationRequired)
	events, _, err := f.Activity(t.Context(), user.ID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var told bool
	for _, e := range events {
		told = told || e.Action == "user.reset_2fa" && e.Actor == "operator"
	}
	if !told {
		t.Errorf("the reset is not told: %+v", events)
	}
}
