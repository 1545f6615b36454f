package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// fixture is a directory over a store in memory with a test clock and injected faults.
type fixture struct {
	*Directory
	clock  *storagetest.Clock
	engine *storagetest.Faulty
	store  *storage.Store
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	f := fixture{
		clock:  storagetest.NewClock(time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)),
		engine: storagetest.NewFaulty(memory.New()),
	}
	f.store = storage.New(f.engine, storage.Options{Clock: f.clock.Now})
	t.Cleanup(func() { _ = f.store.Close() })
	f.Directory = f.reopened(t)
	return f
}

// reopened loads the directory from the store again, as a restart does.
func (f fixture) reopened(t testing.TB) *Directory {
	t.Helper()
	d, err := Open(t.Context(), f.store, testKeyring, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (f fixture) user(t testing.TB, name string) User {
	t.Helper()
	user, err := f.CreateUser(t.Context(), "operator", name)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

func (f fixture) key(t testing.TB, user string, spec KeySpec) (Key, string) {
	t.Helper()
	key, secret, err := f.CreateKey(t.Context(), "operator", user, spec)
	if err != nil {
		t.Fatal(err)
	}
	return key, secret.Reveal()
}

// checkKey checks whether an API key is in force, now and after a restart.
func (f fixture) checkKey(t *testing.T, what, secret string, want bool) {
	t.Helper()
	for when, d := range map[string]*Directory{"in memory": f.Directory, "after a restart": f.reopened(t)} {
		if _, got := d.Authenticate(secret); got != want {
			t.Errorf("%s is accepted %s: %v, want %v", what, when, got, want)
		}
	}
}

func codeOf(err error) fault.Code {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

func paramOf(err error) string {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Param
	}
	return ""
}

func TestAuthenticateReturnsTheUserAndTheScope(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	key, secret := f.key(t, "ann", KeySpec{Name: " laptop ", Models: []string{"a-*"}})
	p, ok := f.Authenticate(secret)
	if !ok || p.UserID != user.ID || p.UserName != "ann" || p.KeyID != key.ID || p.KeyName != "laptop" {
		t.Fatalf("%+v, %v", p, ok)
	}
	if !p.MayUse("a-1") || p.MayUse("b-1") {
		t.Error("the principal has other models than the key")
	}
}

func TestKeyChangesApplyToTheNextRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	first, secret := f.key(t, "ann", KeySpec{})
	_, other := f.key(t, user.ID, KeySpec{})
	f.checkKey(t, "a fresh key", secret, true)

	if _, err := f.SetUserDisabled(t.Context(), "operator", "ANN", true); err != nil {
		t.Fatal(err)
	}
	f.checkKey(t, "a key of a disabled user", secret, false)
	f.checkKey(t, "the other key of a disabled user", other, false)
	if _, _, err := f.CreateKey(t.Context(), "operator", "ann", KeySpec{}); codeOf(err) != fault.Conflict {
		t.Errorf("a key for a disabled user: %v", err)
	}
	if _, err := f.SetUserDisabled(t.Context(), "operator", user.ID, false); err != nil {
		t.Fatal(err)
	}
	f.checkKey(t, "a key of an enabled user", secret, true)

	revoked, err := f.RevokeKey(t.Context(), "operator", first.ID)
	if err != nil || revoked.Revoked != f.clock.Now().Unix() {
		t.Fatal(revoked, err)
	}
	f.checkKey(t, "a revoked key", secret, false)
	f.checkKey(t, "the other key", other, true)

	f.clock.Advance(time.Hour)
	again, err := f.RevokeKey(t.Context(), "operator", first.ID)
	if err != nil || again.Revoked != revoked.Revoked {
		t.Errorf("revoking again changed %+v into %+v (%v)", revoked, again, err)
	}
	if _, _, err := f.RotateKey(t.Context(), "operator", first.ID, 0); codeOf(err) != fault.Conflict {
		t.Errorf("a revoked key was rotated: %v", err)
	}
	if _, err := f.SetUserDisabled(t.Context(), "operator", user.ID, false); err != nil {
		t.Fatal(err)
	}
	f.checkKey(t, "a revoked key of an enabled user", secret, false)
}

func TestAKeyExpires(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	_, secret := f.key(t, "ann", KeySpec{Expires: f.clock.Now().Add(time.Minute).Unix()})
	f.clock.Advance(time.Minute - time.Nanosecond)
	f.checkKey(t, "a key before its end", secret, true)
	f.clock.Advance(time.Nanosecond)
	f.checkKey(t, "a key at its end", secret, false)
	if _, _, err := f.CreateKey(t.Context(), "operator", "ann", KeySpec{Expires: f.clock.Now().Unix()}); codeOf(err) != fault.InvalidParameter {
		t.Errorf("a key that has expired already: %v", err)
	}
}

func TestAPreviousSecretIsAcceptedDuringItsGrace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	key, first := f.key(t, "ann", KeySpec{Models: []string{"m"}})
	rotate := func(grace time.Duration) string {
		t.Helper()
		rotated, secret, err := f.RotateKey(t.Context(), "operator", key.ID, grace)
		if err != nil || rotated.ID != key.ID || len(rotated.Operator.Models) != 1 {
			t.Fatalf("%+v, %v", rotated, err)
		}
		return secret.Reveal()
	}

	second := rotate(time.Hour)
	f.checkKey(t, "the new secret", second, true)
	f.checkKey(t, "the old secret in its grace", first, true)
	f.clock.Advance(time.Hour - time.Nanosecond)
	f.checkKey(t, "the old secret at the end of its grace", first, true)
	f.clock.Advance(time.Nanosecond)
	f.checkKey(t, "the old secret after its grace", first, false)
	f.checkKey(t, "the new one after that", second, true)

	third := rotate(time.Hour)
	fourth := rotate(time.Hour)
	f.checkKey(t, "a secret two rotations old", second, false)
	f.checkKey(t, "a secret one rotation old", third, true)
	fifth := rotate(0)
	f.checkKey(t, "a secret without a grace", fourth, false)
	f.checkKey(t, "the newest", fifth, true)

	for _, grace := range []time.Duration{-1, MaxGrace + 1} {
		if _, _, err := f.RotateKey(t.Context(), "operator", key.ID, grace); codeOf(err) != fault.InvalidParameter {
			t.Errorf("a grace of %v: %v", grace, err)
		}
	}
	f.checkKey(t, "the newest after refused rotations", fifth, true)
}

func TestAGraceEndsWithItsKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	key, old := f.key(t, "ann", KeySpec{Expires: f.clock.Now().Add(time.Minute).Unix()})
	if _, _, err := f.RotateKey(t.Context(), "operator", key.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	f.clock.Advance(time.Minute)
	f.checkKey(t, "the old secret of an expired key", old, false)

	key, old = f.key(t, "ann", KeySpec{})
	if _, _, err := f.RotateKey(t.Context(), "operator", key.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := f.RevokeKey(t.Context(), "operator", key.ID); err != nil {
		t.Fatal(err)
	}
	f.checkKey(t, "the old secret of a revoked key", old, false)
}

func TestUnknownUsersAndKeysAreNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for what, call := range map[string]func() error{
		"user":    func() error { _, err := f.User(t.Context(), "unknown"); return err },
		"disable": func() error { _, err := f.SetUserDisabled(t.Context(), "operator", "unknown", true); return err },
		"list":    func() error { _, err := f.Keys(t.Context(), "unknown"); return err },
		"create":  func() error { _, _, err := f.CreateKey(t.Context(), "operator", "unknown", KeySpec{}); return err },
		"revoke":  func() error { _, err := f.RevokeKey(t.Context(), "operator", "key_0"); return err },
		"rotate":  func() error { _, _, err := f.RotateKey(t.Context(), "operator", "key_0", 0); return err },
		"limit a key": func() error {
			_, err := f.ChangeKeyLimits(t.Context(), "operator", "key_0", Limits{}.Change())
			return err
		},
		"limit a user": func() error {
			_, err := f.ChangeUserLimits(t.Context(), "operator", "unknown", Limits{}.Change())
			return err
		},
		"mint":           func() error { _, err := f.MintToken(t.Context(), "operator", "unknown"); return err },
		"revoke a token": func() error { return f.RevokeToken(t.Context(), "operator", "unknown") },
		"find": func() error {
			return f.store.View(t.Context(), func(r storage.Reader) error { _, err := findUser(r, "unknown"); return err })
		},
	} {
		if err := call(); codeOf(err) != fault.NotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMemoryMatchesTheStoreAfterAnUnknownOutcome checks that the table in memory follows the
// committed state after a commit with any outcome, so that a revoked key is not accepted.
func TestMemoryMatchesTheStoreAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault storagetest.Fault
		want  bool // the key is still in force
	}{
		"committed":     {storagetest.UnknownCommitted, false},
		"not committed": {storagetest.UnknownLost, true},
		"low space":     {storagetest.LowSpace, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.user(t, "ann")
			key, secret := f.key(t, "ann", KeySpec{})
			f.engine.Plan(c.fault)
			if _, err := f.RevokeKey(t.Context(), "operator", key.ID); codeOf(err) != fault.StoreUnavailable {
				t.Errorf("the error is %v", err)
			}
			f.checkKey(t, "the key", secret, c.want)
		})
	}
}

func TestAKeyIsRefusedWhenTheStoreCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	key, secret := f.key(t, "ann", KeySpec{})
	f.engine.Plan(storagetest.SyncFailed)
	if _, err := f.RevokeKey(t.Context(), "operator", key.ID); codeOf(err) != fault.StoreUnavailable {
		t.Errorf("the error is %v", err)
	}
	if _, ok := f.Authenticate(secret); ok {
		t.Error("a key whose revocation may have happened is accepted")
	}
}

func TestMemoryMatchesTheStoreAfterConcurrentChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const people = 8
	var mu sync.Mutex
	secrets := make(map[string]bool) // all created keys and tokens
	remember := func(s Secret) {
		mu.Lock()
		defer mu.Unlock()
		secrets[s.Reveal()] = true
	}
	var keys []string
	for i := range people {
		f.user(t, fmt.Sprintf("user%d", i))
		key, secret := f.key(t, fmt.Sprintf("user%d", i), KeySpec{})
		keys = append(keys, key.ID)
		secrets[secret] = true
	}

	var work sync.WaitGroup
	ctx := context.WithoutCancel(t.Context())
	for worker := range 8 {
		work.Go(func() {
			for step := range 40 {
				name, key := fmt.Sprintf("user%d", (worker+step)%people), keys[(worker*3+step)%people]
				switch (worker + step*5) % 8 {
				case 0, 1:
					if _, secret, err := f.CreateKey(ctx, "operator", name, KeySpec{}); err == nil {
						remember(secret)
					}
				case 2, 3:
					if _, secret, err := f.RotateKey(ctx, "operator", key, time.Duration(step%2)*time.Hour); err == nil {
						remember(secret)
					}
				case 4:
					_, _ = f.SetUserDisabled(ctx, "operator", name, step%2 == 0)
				case 5:
					if step > 30 {
						_, _ = f.RevokeKey(ctx, "operator", key)
					}
				case 6:
					if secret, err := f.MintToken(ctx, "operator", name); err == nil {
						remember(secret)
					}
				case 7:
					if step%3 == 0 {
						_ = f.RevokeToken(ctx, "operator", name)
					}
					_, _ = f.ChangeUserLimits(ctx, "operator", name, Limits{Streams: int64(step)}.Change())
				}
			}
		})
	}
	work.Wait()

	fresh := f.reopened(t)
	if f.Count() != fresh.Count() {
		t.Errorf("memory holds %d credentials, the store has %d", f.Count(), fresh.Count())
	}
	keysInForce, tokensInForce := 0, 0
	for secret := range secrets {
		inMemory, ok := f.Authenticate(secret)
		inStore, want := fresh.Authenticate(secret)
		if ok != want {
			t.Errorf("a key is accepted in memory: %v, by the store: %v", ok, want)
		}
		if ok && want {
			keysInForce++
			if inMemory.UserLimits != inStore.UserLimits {
				t.Errorf("memory has the limits %v, the store has %v", inMemory.UserLimits, inStore.UserLimits)
			}
		}
		_, ok = f.AuthenticateToken(secret)
		if _, want = fresh.AuthenticateToken(secret); ok != want {
			t.Errorf("a token is accepted in memory: %v, by the store: %v", ok, want)
		}
		if want {
			tokensInForce++
		}
	}
	if keysInForce == 0 || tokensInForce == 0 || keysInForce+tokensInForce == len(secrets) {
		t.Errorf("%d keys and %d tokens of %d secrets are in force: the test is not effective", keysInForce, tokensInForce, len(secrets))
	}
}

func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	key, secret := f.key(t, "ann", KeySpec{Name: "laptop"})
	ctx := t.Context()
	_, rotated, err := f.RotateKey(ctx, "operator", key.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	token := ""
	for range 2 { // the second change has no effect, except that of the token
		if _, err := f.ChangeKeyLimits(ctx, "operator", key.ID, Limits{Streams: 3}.Change()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ChangeUserLimits(ctx, "operator", "ann", Limits{Streams: 4}.Change()); err != nil {
			t.Fatal(err)
		}
		token = f.token(t, "ann")
	}
	for range 2 {
		if err := f.RevokeToken(ctx, "operator", "ann"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := f.SetUserDisabled(ctx, "operator", "ann", true); err != nil {
			t.Fatal(err)
		}
		if _, err := f.RevokeKey(ctx, "operator", key.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.CreateUser(ctx, "operator", "Ann"); codeOf(err) != fault.Conflict {
		t.Fatal(err) // a change without effect records no event
	}
	got := map[string]int{}
	for _, e := range f.events(t) {
		got[e.Action]++
		if e.Actor != "operator" || e.Time != f.clock.Now().Unix() || e.User != user.ID {
			t.Errorf("event %+v", e)
		}
		if text := fmt.Sprint(e); containsAny(text, secret, rotated.Reveal(), token) {
			t.Errorf("a secret is in the event %s", e.Action)
		}
		if want := map[string]string{"key.limit": "streams 3", "user.limit": "streams 4"}[e.Action]; want != "" && e.Detail != want {
			t.Errorf("%s has the detail %q, want %q", e.Action, e.Detail, want)
		}
	}
	want := map[string]int{"user.create": 1, "key.create": 1, "key.rotate": 1, "key.limit": 1, "user.limit": 1, "token.mint": 2, "token.revoke": 1, "user.disable": 1, "key.revoke": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("audited %v, want %v", got, want)
	}
}
