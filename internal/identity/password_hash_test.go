package identity

import (
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/storage"
)

// passwordOf returns the hash of a user's password.
func (f fixture) passwordOf(t testing.TB, name string) string {
	t.Helper()
	var user *userRecord
	err := f.store.View(t.Context(), func(r storage.Reader) (err error) {
		user, err = findUserRecord(r, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return user.Password
}

func TestAPasswordIsHashedByArgon2idAtItsCost(t *testing.T) {
	t.Parallel()
	f := newFixture(t) // hashes in earnest
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
	// From the tests of the reference implementation (phc-winner-argon2, test.c):
	// the parameters that count are those in the string.
	reference := "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	p, err := parsePHC(reference)
	if err != nil {
		t.Fatal(err)
	}
	if right, err := (place{hasher: newHasher()}).matches(t.Context(), "password", p); err != nil || !right {
		t.Errorf("the reference hash: %v, %v", right, err)
	}
}

func TestAHashThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	good := phc{cost: currentCost, salt: make([]byte, 16), sum: make([]byte, 32)}.String()
	if _, err := parsePHC(good); err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawStdEncoding.EncodeToString
	for _, text := range []string{
		"", "x", good[1:], good + "$", good + " ", strings.Replace(good, "argon2id", "argon2i", 1),
		strings.Replace(good, "v=19", "v=16", 1), strings.Replace(good, "t=2", "t=0", 1), strings.Replace(good, "t=2", "t=02", 1),
		strings.Replace(good, "t=2", "t=999", 1), strings.Replace(good, "p=1", "p=0", 1), strings.Replace(good, "p=1", "p=1,x=2", 1),
		strings.Replace(good, "m=19456", "m=9999999", 1), strings.Replace(good, "m=19456", "m=-1", 1),
		"$argon2id$v=19$m=19456,t=2,p=1$" + b64(make([]byte, 4)) + "$" + b64(make([]byte, 32)),
		"$argon2id$v=19$m=19456,t=2,p=1$" + b64(make([]byte, 16)) + "$" + b64(make([]byte, 8)),
		"$argon2id$v=19$m=19456,t=2,p=1$" + b64(make([]byte, 16)) + "$" + b64(make([]byte, 100)),
		"$argon2id$v=19$m=19456,t=2,p=1$!!$!!",
	} {
		if _, err := parsePHC(text); !errors.Is(err, errPHC) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzPHC(f *testing.F) {
	f.Add(noHash.String())
	f.Add("$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePHC(text)
		if err == nil && (p.String() != text || p.memory > mostCost.memory || p.time > mostCost.time || len(p.sum) < 16) {
			t.Errorf("%q was read as %+v", text, p)
		}
	})
}

// weakened gives a person a hash of goodPassword that costs less than they do.
func (f fixture) weakened(t testing.TB, user User) string {
	t.Helper()
	weak := phc{cost: cost{time: 1, memory: 8, threads: 1}, salt: []byte("a salt of 16 b.."), sum: make([]byte, 32)}
	var err error
	if weak.sum, err = f.hasher.compute(t.Context(), goodPassword, weak); err != nil {
		t.Fatal(err)
	}
	err = f.store.Update(t.Context(), func(txn storage.Txn) error {
		_, _, err := alterUser(txn, user.ID, func(u *userRecord) (*audit.Event, error) {
			u.Password = weak.String()
			return &audit.Event{}, nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return weak.String()
}

func TestAWeakerHashIsRaisedAtALogIn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	weak := f.weakened(t, f.user(t, "ann"))
	refusedAs(t, "a wrong password", f.attempt(t, "ann", otherPassword, testDevice), fault.NotLoggedIn)
	if got := f.passwordOf(t, "ann"); got != weak {
		t.Errorf("a wrong password changed the hash: %s", got)
	}
	before := f.login(t, "ann")
	raised := f.passwordOf(t, "ann")
	if !strings.HasPrefix(raised, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("after a log-in: %s", raised)
	}
	f.open(t, "the session of that log-in", before.Secret, true)
	refusedAs(t, "the same password", f.attempt(t, "ann", goodPassword, testDevice), "")
	if f.passwordOf(t, "ann") != raised {
		t.Error("a hash of the current cost was computed anew")
	}
}

func TestTwoWhoLogInAtOnceByAWeakerHashAreBothLetIn(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.weakened(t, f.user(t, "ann"))
	f.hasher.anonymousSlots = limit.NewSemaphore(2) // with one core they would run one after another
	var both sync.WaitGroup
	both.Add(2)
	f.hasher.derive = func(password, salt []byte, c cost, size int) []byte {
		if c.memory < currentCost.memory { // the old hash: neither goes on before both have read it
			both.Done()
			both.Wait()
		}
		return cheapHash(password, salt, c, size)
	}
	outcomes := make(chan error)
	for range 2 {
		go func() { outcomes <- f.attempt(t, "ann", goodPassword, testDevice) }()
	}
	for range 2 {
		refusedAs(t, "one of them", <-outcomes, "")
	}
	f.hasher.derive = cheapHash
	refusedAs(t, "the next", f.attempt(t, "ann", goodPassword, testDevice), "")
}

func TestFewPasswordsAreHashedAtOnceAndFewWait(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.person(t, "ann")
	ann := f.login(t, "ann").Account
	reset := must(f.IssueResetCode(ctx, "operator", "ann"))(t).Reveal()

	computing, release := make(chan struct{}), make(chan struct{})
	var running, most, anonymous, mostAnonymous atomic.Int32
	raise := func(most *atomic.Int32, n int32) {
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
	}
	f.hasher.derive = func(password, salt []byte, c cost, size int) []byte {
		raise(&most, running.Add(1))
		if string(password) == otherPassword {
			raise(&mostAnonymous, anonymous.Add(1))
			defer anonymous.Add(-1)
		}
		computing <- struct{}{}
		<-release
		running.Add(-1)
		return cheapHash(password, salt, c, size)
	}
	turnedAway := func(tries map[string]func() error) {
		t.Helper()
		for what, try := range tries {
			var refusal *fault.Fault
			if err := try(); !errors.As(err, &refusal) || refusal.Code != fault.Overloaded || refusal.RetryAfter <= 0 {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	outcomes, proofs := make(chan error), make(chan error)
	for i := range maxAnonymous {
		go func() {
			_, err := f.Login(ctx, fmt.Sprint("name", i), otherPassword, address(i), testTerms)
			outcomes <- err
		}()
	}
	atOnce := cap(f.hasher.slots)
	for range atOnce - 1 {
		<-computing
	}
	for f.hasher.anonymous.Held() < maxAnonymous {
		runtime.Gosched()
	}
	// All places of unauthenticated callers are taken, those in line too: one who comes now is
	// turned away at once, and the attempt does not count.
	for range 20 {
		turnedAway(map[string]func() error{
			"a log-in":       func() error { return f.attempt(t, "ann", goodPassword, testDevice) },
			"a registration": func() error { return second(f.Register(ctx, "new", goodPassword, testDevice, LoginLimits{})) },
			"a reset":        func() error { return f.ResetPassword(ctx, reset, otherPassword, testDevice, LoginLimits{}) },
		})
	}
	// A user who is logged in finds a place, and comes before them.
	const known = maxHashes + maxWaiting - maxAnonymous
	for range known {
		go func() { proofs <- f.ProvePassword(ctx, ann, goodPassword) }()
	}
	<-computing
	for f.hasher.places.Held() < maxHashes+maxWaiting {
		runtime.Gosched()
	}
	for range 20 {
		turnedAway(map[string]func() error{
			"a proof":           func() error { return f.ProvePassword(ctx, ann, goodPassword) },
			"a change":          func() error { return second(f.ChangePassword(ctx, ann, goodPassword, otherPassword)) },
			"an operator's set": func() error { return f.SetPassword(ctx, "operator", "ann", otherPassword) },
		})
	}
	go func() {
		for range computing { // those in line come one after another
		}
	}()
	close(release)
	for range known {
		refusedAs(t, "one of the known", <-proofs, "")
	}
	for range maxAnonymous {
		refusedAs(t, "an unauthenticated caller who waited", <-outcomes, fault.NotLoggedIn)
	}
	if n := int(most.Load()); n > atOnce || n > maxHashes {
		t.Errorf("%d hashes at once, at most %d are allowed", n, atOnce)
	}
	if n := int(mostAnonymous.Load()); n >= atOnce {
		t.Errorf("%d hashes of unauthenticated callers at once, of %d in all", n, atOnce)
	}
	refusedAs(t, "a log-in afterwards", f.attempt(t, "ann", goodPassword, testDevice), "")
	if err := f.ResetPassword(ctx, reset, otherPassword, testDevice, LoginLimits{}); err != nil {
		t.Errorf("the reset code was used up by a refusal: %v", err)
	}
}

// It is not parallel: it measures the memory of the process.
func TestHashesTakeTheMemoryOfFourAtMost(t *testing.T) {
	h := newHasher()
	runtime.GC()
	before := heap()
	var most atomic.Uint64
	derive := h.derive
	h.derive = func(password, salt []byte, c cost, size int) []byte {
		key := derive(password, salt, c, size)
		// Its own memory is still counted here, and that of the others.
		for now, m := heap(), most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		return key
	}
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			if _, err := (place{hasher: h}).hash(t.Context(), goodPassword); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	const allowed = (4*19 + 4) << 20
	if took := most.Load() - before; took > allowed || took < 19<<20 {
		t.Errorf("24 hashes took %d MiB", took>>20)
	}
}

// heap returns how many bytes the objects on the heap take, dead ones that are
// not collected among them.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
