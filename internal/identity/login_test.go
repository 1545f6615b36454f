package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
	"github.com/caddy-modelgate/modelgate/storage"
)

// address returns a different address for each n.
func address(n int) Device {
	return Device{Address: netip.AddrFrom4([4]byte{203, 0, byte(n >> 8), byte(n)})}
}

// tryLogin tries to log in.
func (f fixture) tryLogin(t testing.TB, name, password string, from Device) error {
	t.Helper()
	_, err := f.Login(t.Context(), name, password, from, testTerms)
	return err
}

func TestAFailedLogInDoesNotRevealWhatWasWrong(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ann := f.userWithPassword(t, "ann")
	f.user(t, "bare") // without a password
	f.userWithPassword(t, "gone")
	must(f.SetUserDisabled(t.Context(), "operator", "gone", true))(t)

	var hashes []password.Cost
	f.hasher.Derive = func(password, salt []byte, c password.Cost, size int) []byte {
		hashes = append(hashes, c)
		return cheapHash(password, salt, c, size)
	}
	answers := map[string][]string{}
	for i, c := range []struct{ what, name, password string }{
		{"a wrong password", "ann", otherPassword},
		{"no password", "ann", ""},
		{"a password with an extra space", "ann", goodPassword + " "},
		{"a very long password", "ann", strings.Repeat("x", 60_000)},
		{"an unknown name", "eve", goodPassword},
		{"an invalid name", "no such user", goodPassword},
		{"no name", "", goodPassword},
		{"an id in place of a name", ann.ID, goodPassword},
		{"a user without a password", "bare", goodPassword},
		{"a user without a password, and none given", "bare", ""},
		{"a disabled user and a wrong password", "gone", otherPassword},
	} {
		hashes = nil
		err := f.tryLogin(t, c.name, c.password, address(i))
		var refusal *fault.Fault
		if !errors.As(err, &refusal) {
			t.Fatalf("%s: %v", c.what, err)
		}
		answer := fmt.Sprintf("%+v", *refusal)
		answers[answer] = append(answers[answer], c.what)
		if len(hashes) != 1 || hashes[0] != password.None.Cost {
			t.Errorf("%s: hashes computed: %+v, want one at the current cost", c.what, hashes)
		}
	}
	if len(answers) != 1 {
		t.Errorf("different answers: %q", answers)
	}
	refusedAs(t, "a wrong password", f.tryLogin(t, "ann", otherPassword, address(99)), fault.NotLoggedIn)
	refusedAs(t, "a disabled user with the right password", f.tryLogin(t, "gone", goodPassword, address(98)), fault.UserDisabled)
	if err := f.tryLogin(t, "ANN", goodPassword, address(97)); err != nil {
		t.Errorf("a name in another case: %v", err)
	}
}

func TestLogInsAreCountedByNameBeforeAHashIsComputed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ann", "unknown-name", "no name\x00at all"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newPeople(t)
			f.userWithPassword(t, "ann")
			earlier := f.login(t, "ann")
			var hashes atomic.Int32
			f.hasher.Derive = func(password, salt []byte, c password.Cost, size int) []byte {
				hashes.Add(1)
				return cheapHash(password, salt, c, size)
			}
			// Of many concurrent attempts, from any address and in any case, at most ten are checked.
			var wg sync.WaitGroup
			var refused atomic.Int32
			for i := range 40 {
				spelling := name
				if i%2 == 1 && name != "no name\x00at all" {
					spelling = strings.ToUpper(name)
				}
				wg.Go(func() {
					for {
						err := f.tryLogin(t, spelling, "wrong password", address(i))
						if codeOf(err) == fault.Overloaded {
							continue
						}
						if codeOf(err) == fault.TooManyAttempts {
							refused.Add(1)
						}
						return
					}
				})
			}
			wg.Wait()
			if hashes.Load() != 10 || refused.Load() != 30 {
				t.Errorf("%d were checked and %d refused, want 10 and 30", hashes.Load(), refused.Load())
			}
			again := f
			again.Directory = f.reopened(t)
			again.hasher.Derive = cheapHash
			for what, g := range map[string]fixture{"now": f, "after a restart": again} {
				err := g.tryLogin(t, name, goodPassword, address(1000))
				refusedAs(t, "the right password "+what, err, fault.TooManyAttempts)
				var refusal *fault.Fault
				if errors.As(err, &refusal) && refusal.RetryAfter != 15*time.Minute {
					t.Errorf("%s: RetryAfter is %s", what, refusal.RetryAfter)
				}
			}
			f.checkSession(t, "a session from before", earlier.Secret, true)
			f.clock.Advance(15*time.Minute - time.Second)
			refusedAs(t, "after 14:59", f.tryLogin(t, name, goodPassword, address(1000)), fault.TooManyAttempts)
			f.clock.Advance(time.Second)
			want := fault.NotLoggedIn
			if name == "ann" {
				want = ""
			}
			refusedAs(t, "after 15 minutes", f.tryLogin(t, name, goodPassword, address(1000)), want)
		})
	}
}

func TestARightPasswordResetsTheFailuresOfItsName(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	for round := range 3 {
		for range 9 {
			refusedAs(t, "ann's wrong", f.tryLogin(t, "ann", otherPassword, address(round)), fault.NotLoggedIn)
		}
		refusedAs(t, "ann's right", f.tryLogin(t, "ann", goodPassword, address(round)), "")
	}
	// If a factor is due, the attempts stay: a caller who knows only the password must be limited.
	entry := f.login(t, "bob")
	_, code := f.enrol(t, entry)
	for range 10 {
		refusedAs(t, "a half-open log-in", f.tryLogin(t, "bob", goodPassword, address(7)), "")
	}
	refusedAs(t, "the eleventh", f.tryLogin(t, "bob", goodPassword, address(8)), fault.TooManyAttempts)

	f.clock.Advance(15 * time.Minute)
	for range 12 {
		half := f.login(t, "bob")
		if _, err := f.LoginCode(t.Context(), half.Account, code()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLogInsAreCountedByAddress(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		from  func(n int) string
		other string
	}{
		"IPv4":              {func(int) string { return "192.0.2.1" }, "192.0.2.2"},
		"IPv4 in IPv6":      {func(n int) string { return []string{"192.0.2.1", "::ffff:192.0.2.1"}[n%2] }, "::ffff:192.0.2.2"},
		"a /64 of IPv6":     {func(n int) string { return fmt.Sprintf("2001:db8:0:1::%x", n) }, "2001:db8:0:2::1"},
		"unknown addresses": {func(int) string { return "" }, "192.0.2.2"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newPeople(t)
			f.userWithPassword(t, "ann")
			device := func(text string) Device {
				addr, _ := netip.ParseAddr(text)
				return Device{Address: addr}
			}
			for n := range 100 {
				refusedAs(t, "a wrong password", f.tryLogin(t, fmt.Sprintf("name%d", n), otherPassword, device(c.from(n))), fault.NotLoggedIn)
			}
			refusedAs(t, "the 101st", f.tryLogin(t, "ann", goodPassword, device(c.from(101))), fault.TooManyAttempts)
			_, err := f.Register(t.Context(), "new", goodPassword, device(c.from(102)), LoginLimits{})
			refusedAs(t, "a registration from the address", err, fault.TooManyAttempts)
			err = second(f.ResetPassword(t.Context(), "12345-12345-12345-12345", goodPassword, device(c.from(103)), LoginLimits{}))
			refusedAs(t, "a reset code from the address", err, fault.TooManyAttempts)
			refusedAs(t, "from another address", f.tryLogin(t, "ann", goodPassword, device(c.other)), "")
			f.clock.Advance(time.Hour)
			refusedAs(t, "an hour later", f.tryLogin(t, "ann", goodPassword, device(c.from(104))), "")
		})
	}
}

func TestALogInReturnsOnlyItsOwnAttempt(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	f.withTOTP(t, f.login(t, "bob").Account)
	terms := testTerms
	terms.LoginLimits = LoginLimits{PerUser: 100, PerAddress: 3}
	tries := func(name, password string) error {
		_, err := f.Login(t.Context(), name, password, testDevice, terms)
		return err
	}
	for range 5 {
		refusedAs(t, "one of many users behind one address", tries("ann", goodPassword), "")
		refusedAs(t, "one with a second factor", tries("bob", goodPassword), "")
	}
	for range 2 {
		refusedAs(t, "a guess", tries("bob", otherPassword), fault.NotLoggedIn)
	}
	refusedAs(t, "an own account", tries("ann", goodPassword), "")
	refusedAs(t, "the last guess", tries("bob", otherPassword), fault.NotLoggedIn)
	refusedAs(t, "another guess", tries("bob", otherPassword), fault.TooManyAttempts)
	refusedAs(t, "an own account at the limit", tries("ann", goodPassword), fault.TooManyAttempts)
	terms.LoginLimits.PerAddress = 4
	refusedAs(t, "with a higher limit", tries("ann", goodPassword), "")
	refusedAs(t, "the one guess that it adds", tries("bob", otherPassword), fault.NotLoggedIn)
	refusedAs(t, "a second guess", tries("bob", otherPassword), fault.TooManyAttempts)
}

func TestManyLogInsOfOneUserUseUpTheLimitOfTheirAddress(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	terms := testTerms
	terms.LoginLimits = LoginLimits{PerUser: 100, PerAddress: 3}
	refused := func(what, name string, code fault.Code) {
		t.Helper()
		_, err := f.Login(t.Context(), name, goodPassword, testDevice, terms)
		refusedAs(t, what, err, code)
	}
	for range maxReturned + 3 {
		refused("a log-in", "ann", "")
	}
	refused("one more log-in", "ann", fault.TooManyAttempts)
	f.clock.Advance(addressWindow)
	refused("an hour later", "ann", "")
	refused("another user", "bob", "")
}

func TestLoginLimitsAreConfigurable(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	terms := testTerms
	terms.LoginLimits = LoginLimits{PerUser: 2, PerAddress: 3}
	tries := func(name string, from Device) error {
		_, err := f.Login(t.Context(), name, otherPassword, from, terms)
		return err
	}
	for i := range 2 {
		refusedAs(t, "one of two", tries("ann", address(i)), fault.NotLoggedIn)
	}
	refusedAs(t, "the third attempt by a name", tries("ann", address(3)), fault.TooManyAttempts)
	for i := range 3 {
		refusedAs(t, "one of three", tries(fmt.Sprint("name", i), address(9)), fault.NotLoggedIn)
	}
	refusedAs(t, "the fourth attempt from an address", tries("name9", address(9)), fault.TooManyAttempts)
}

func TestAttemptCountersExpire(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	_ = f.tryLogin(t, "another-unknown", otherPassword, address(1))
	if err := f.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		return r.Scan(nil, nil, func(key, _ []byte) bool {
			if !strings.HasPrefix(string(key), "attempts/") && !strings.HasPrefix(string(key), "meta/") {
				t.Errorf("%q was written for an unknown name", key)
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	purges := purgesOf(t, f, func(txn storage.Txn) error {
		now := f.clock.Now()
		return attempts.Count(txn, now, LoginLimits{}.byName("x"), LoginLimits{}.fromAddress(testDevice))
	})
	for _, c := range []struct {
		key   string
		after time.Duration
	}{{"attempts/login_name/", userWindow}, {"attempts/login_address/", addressWindow}} {
		purge, ok := purges(c.key)
		if left := purge.Sub(f.clock.Now()); !ok || purge.IsZero() || left < c.after || left > c.after+time.Minute {
			t.Errorf("%s is dropped after %s", c.key, left)
		}
	}
}

// purgesOf runs fn and returns when the engine may drop the records that fn wrote below a
// prefix.
func purgesOf(t testing.TB, f fixture, fn func(storage.Txn) error) func(prefix string) (time.Time, bool) {
	t.Helper()
	seen := map[string]time.Time{}
	err := f.store.Update(t.Context(), func(txn storage.Txn) error { return fn(recordingTxn{txn, seen}) })
	if err != nil {
		t.Fatal(err)
	}
	return func(prefix string) (time.Time, bool) {
		for key, purge := range seen {
			if strings.HasPrefix(key, prefix) {
				return purge, true
			}
		}
		return time.Time{}, false
	}
}

type recordingTxn struct {
	storage.Txn
	seen map[string]time.Time
}

func (r recordingTxn) Set(key, val []byte, purge time.Time) error {
	r.seen[string(key)] = purge
	return r.Txn.Set(key, val, purge)
}

func TestLogInsAreRecordedForTheUserAndInTheLog(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	core, logs := observer.New(zapcore.InfoLevel)
	f.Audit = audit.New(f.store, zap.New(core))
	ann := f.userWithPassword(t, "ann")
	f.clock.Advance(time.Second)
	refusedAs(t, "a wrong password", f.tryLogin(t, "ann", otherPassword, address(1)), fault.NotLoggedIn)
	refusedAs(t, "an unknown user", f.tryLogin(t, otherPassword, goodPassword, address(2)), fault.NotLoggedIn)
	if err := f.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(time.Second)
	f.login(t, "ann")
	if got := logs.FilterMessage("login.refuse").Len(); got != 2 {
		t.Errorf("%d refusals in the log, want 2", got)
	}
	for _, entry := range logs.All() {
		if text := fmt.Sprint(entry.ContextMap()); strings.Contains(text, otherPassword) || strings.Contains(text, goodPassword) {
			t.Errorf("the log holds a password: %s", text)
		}
	}
	events, total, err := f.Audit.Activity(t.Context(), ann.ID, 0, 2)
	if err != nil || total != 4 || len(events) != 2 {
		t.Fatalf("%+v, %d, %v", events, total, err)
	}
	if e := events[0]; e.Action != "login" || e.Actor != audit.You || e.Address != "192.0.2.7" || e.User != "" {
		t.Errorf("%+v", e)
	}
	if e := events[1]; e.Action != "login.refuse" || e.Actor != attempts.Unknown || e.Address != "203.0.0.1" {
		t.Errorf("%+v", e)
	}
}

func TestAPasswordThatChangesWhileItIsCheckedDoesNotLogIn(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	checking, changed := make(chan struct{}), make(chan struct{})
	f.hasher.Derive = func(password, salt []byte, c password.Cost, size int) []byte {
		if string(password) == goodPassword {
			close(checking)
			<-changed
		}
		return cheapHash(password, salt, c, size)
	}
	outcome := make(chan error)
	go func() {
		_, err := f.Login(t.Context(), "ann", goodPassword, testDevice, testTerms)
		outcome <- err
	}()
	<-checking
	if err := f.SetPassword(t.Context(), "operator", "ann", otherPassword); err != nil {
		t.Error(err)
	}
	close(changed)
	refusedAs(t, "a log-in by a password that has been changed", <-outcome, fault.NotLoggedIn)
}
