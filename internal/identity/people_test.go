package identity

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"golang.org/x/crypto/argon2"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
)

// The passwords of the users in these tests. Neither is the name of a user or a common password.
const (
	goodPassword  = "brown bag, blue rain"
	otherPassword = "seven sheep at six"
)

var (
	testTerms  = Terms{Idle: time.Hour, Lifetime: 10 * time.Hour}
	testDevice = Device{Address: netip.MustParseAddr("192.0.2.7"), Agent: "Test/1.0"}
)

// newPeople returns a fixture that hashes passwords at the lowest cost of Argon2id, because these
// tests do not depend on the cost.
func newPeople(t testing.TB) fixture {
	t.Helper()
	f := newFixture(t)
	f.hasher.Derive = cheapHash
	return f
}

func cheapHash(password, salt []byte, _ password.Cost, size int) []byte {
	return argon2.IDKey(password, salt, 1, 8, 1, uint32(size))
}

// userWithPassword creates a user with goodPassword.
func (f fixture) userWithPassword(t testing.TB, name string) User {
	t.Helper()
	user := f.user(t, name)
	if err := f.SetPassword(t.Context(), "operator", name, goodPassword); err != nil {
		t.Fatal(err)
	}
	return user
}

// login logs a user in by goodPassword.
func (f fixture) login(t testing.TB, name string) Entry {
	t.Helper()
	entry, err := f.Login(t.Context(), name, goodPassword, testDevice, testTerms)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// sessionAccount returns the account that a session's secret authenticates, or false.
func (f fixture) sessionAccount(t testing.TB, secret Secret) (*Account, bool) {
	t.Helper()
	account, ok, err := f.AuthenticateSession(t.Context(), secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return account, ok
}

// checkSession checks whether the session with this secret is in force.
func (f fixture) checkSession(t testing.TB, what string, secret Secret, want bool) {
	t.Helper()
	if _, got := f.sessionAccount(t, secret); got != want {
		t.Errorf("%s is in force: %v, want %v", what, got, want)
	}
}

// enrol turns on TOTP for a user who has logged in. It returns the session's new secret, and a
// function that returns codes: each call advances the clock to a code that was not used.
func (f fixture) enrol(t testing.TB, entry Entry) (renewed Secret, code func() string) {
	t.Helper()
	enrolment, err := f.SetUpTOTP(t.Context(), entry.Account, goodPassword, "test")
	if err != nil {
		t.Fatal(err)
	}
	code = func() string {
		t.Helper()
		f.clock.Advance(time.Minute)
		code, err := totp.GenerateCode(enrolment.Secret.Reveal(), f.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	_, renewed, err = f.EnableTOTP(t.Context(), entry.Account, code())
	if err != nil {
		t.Fatal(err)
	}
	return renewed, code
}

// refusedAs checks the code of a refusal.
func refusedAs(t testing.TB, what string, err error, want fault.Code) {
	t.Helper()
	if codeOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// must returns the result of a call, and ends the test if the call failed.
func must[T any](result T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// second and third return the errors of calls with two and three results.
func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }
