package identity

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// passwordOf returns the hash of a user's password.
func (f fixture) passwordOf(t testing.TB, name string) string {
	t.Helper()
	var user *userRecord
	err := f.store.View(t.Context(), func(r storage.Reader) (err error) {
		user, err = findUser(r, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return user.Password
}

func TestPasswordsAreHashedWithArgon2id(t *testing.T) {
	t.Parallel()
	f := newFixture(t) // with real hashes
	f.user(t, "ann")
	for _, name := range []string{"ann", "bob"} {
		if name == "bob" {
			if _, err := f.Register(t.Context(), "bob", goodPassword, testDevice, LoginLimits{}); err != nil {
				t.Fatal(err)
			}
		} else if err := f.SetPassword(t.Context(), "operator", "ann", goodPassword); err != nil {
			t.Fatal(err)
		}
		if got := f.passwordOf(t, name); !strings.HasPrefix(got, "$argon2id$v=19$m=19456,t=2,p=1$") || strings.Count(got, "$") != 5 {
			t.Errorf("%s: %s", name, got)
		}
	}
	if f.passwordOf(t, "ann") == f.passwordOf(t, "bob") {
		t.Error("two users with one password have one hash")
	}
}

// weakenHash stores a hash of goodPassword with a lower cost than new hashes.
func (f fixture) weakenHash(t testing.TB, user User) string {
	t.Helper()
	weak := password.Hash{Cost: password.Cost{Time: 1, Memory: 8, Threads: 1}, Salt: []byte("a salt of 16 b..")}
	weak.Sum = f.hasher.Derive([]byte(goodPassword), weak.Salt, weak.Cost, 32)
	err := f.store.Update(t.Context(), func(txn storage.Txn) error {
		_, err := userTable.Change(txn, table.Key{user.ID}, func(u *userRecord) bool {
			u.Password = weak.String()
			return true
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return weak.String()
}

func TestAWeakerHashIsReplacedAtALogIn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	weak := f.weakenHash(t, f.user(t, "ann"))
	refusedAs(t, "a wrong password", f.tryLogin(t, "ann", otherPassword, testDevice), fault.NotLoggedIn)
	if got := f.passwordOf(t, "ann"); got != weak {
		t.Errorf("a wrong password changed the hash: %s", got)
	}
	before := f.login(t, "ann")
	raised := f.passwordOf(t, "ann")
	if !strings.HasPrefix(raised, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("after a log-in: %s", raised)
	}
	f.checkSession(t, "the session of that log-in", before.Secret, true)
	refusedAs(t, "the same password", f.tryLogin(t, "ann", goodPassword, testDevice), "")
	if f.passwordOf(t, "ann") != raised {
		t.Error("a hash of the current cost was replaced")
	}
}

func TestTwoParallelLogInsWithAWeakerHashSucceed(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.weakenHash(t, f.user(t, "ann"))
	f.hasher = password.NewHasher(2) // with one core the hashes would run one after another
	var both sync.WaitGroup
	both.Add(2)
	f.hasher.Derive = func(password, salt []byte, c password.Cost, size int) []byte {
		if c.Outdated() { // the old hash: both log-ins read it before either continues
			both.Done()
			both.Wait()
		}
		return cheapHash(password, salt, c, size)
	}
	outcomes := make(chan error)
	for range 2 {
		go func() { outcomes <- f.tryLogin(t, "ann", goodPassword, testDevice) }()
	}
	for range 2 {
		refusedAs(t, "one of them", <-outcomes, "")
	}
	f.hasher.Derive = cheapHash
	refusedAs(t, "the next", f.tryLogin(t, "ann", goodPassword, testDevice), "")
}

// TestAFullPasswordQueueDoesNotCountAttempts refuses callers that find no place in the queue.
func TestAFullPasswordQueueDoesNotCountAttempts(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	ann := f.login(t, "ann").Account
	reset := must(f.IssueResetCode(ctx, "operator", "ann"))(t).Reveal()
	var places []password.Place
	fill := func(enter func() (password.Place, error)) {
		for place, err := enter(); err == nil; place, err = enter() {
			places = append(places, place)
		}
	}
	checkOverloaded := func(tries map[string]func() error) {
		t.Helper()
		for what, try := range tries {
			var refusal *fault.Fault
			if err := try(); !errors.As(err, &refusal) || refusal.Code != fault.Overloaded || refusal.RetryAfter <= 0 {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	fill(f.hasher.EnterAnonymous)
	for range 20 {
		checkOverloaded(map[string]func() error{
			"a log-in":       func() error { return f.tryLogin(t, "ann", goodPassword, testDevice) },
			"a registration": func() error { return second(f.Register(ctx, "new", goodPassword, testDevice, LoginLimits{})) },
			"a reset":        func() error { return second(f.ResetPassword(ctx, reset, otherPassword, testDevice, LoginLimits{})) },
		})
	}
	if err := f.ProvePassword(ctx, ann, goodPassword); err != nil {
		t.Errorf("an authenticated user finds no place: %v", err)
	}
	fill(f.hasher.Enter)
	for range 20 {
		checkOverloaded(map[string]func() error{
			"a proof":           func() error { return f.ProvePassword(ctx, ann, goodPassword) },
			"a change":          func() error { return second(f.ChangePassword(ctx, ann, goodPassword, otherPassword)) },
			"an operator's set": func() error { return f.SetPassword(ctx, "operator", "ann", otherPassword) },
		})
	}
	for _, place := range places {
		place.Leave()
	}
	refusedAs(t, "a log-in afterwards", f.tryLogin(t, "ann", goodPassword, testDevice), "")
	if err := second(f.ResetPassword(ctx, reset, otherPassword, testDevice, LoginLimits{})); err != nil {
		t.Errorf("the reset code was used up by a refusal: %v", err)
	}
}
