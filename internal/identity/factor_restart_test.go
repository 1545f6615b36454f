package identity

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// restarted returns a fixture with a Badger store in a directory with its key file. end closes
// it, as the end of the process does.
func restarted(t *testing.T, dir string, c *storagetest.Clock) (f fixture, end func()) {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	module := &badger.Badger{Path: filepath.Join(dir, "store")}
	if err := module.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	engine, err := module.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f = fixture{clock: c, store: storage.New(engine, storage.Options{Clock: c.Now})}
	keyring, err := seal.FromFile(t.Context(), f.store, filepath.Join(dir, "modelgate.key"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Directory, err = Open(t.Context(), f.store, keyring, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	return f, func() {
		if err := f.store.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFactorsSurviveARestart(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), storagetest.NewClock(time.Now())
	f, end := restarted(t, dir, c)
	user := f.user(t, "ann")
	ann := f.newAccount(t, user, false)
	seed, codes := f.withTOTP(t, ann)
	v, _ := f.withPasskey(t, f.newAccount(t, user, false))
	used := f.code(t, seed, 0)
	expect(t, "a code", f.verify(t, ann, used), "")
	begun := f.beginVerification(t, ann)
	end()

	f, end = restarted(t, dir, c)
	expect(t, "a step-up from before", f.Fresh(t.Context(), ann), "")
	expect(t, "a ceremony from before", f.finishVerification(t, ann, v.get(t, begun)), "")
	expect(t, "an assertion", f.verifyByPasskey(t, ann), "")
	expect(t, "a code that was used", f.verify(t, ann, used), fault.VerificationFailed)
	expect(t, "a backup code", f.verify(t, ann, codes[0]), "")
	for range 4 { // the used code was the first
		expect(t, "a wrong code", f.verify(t, ann, f.wrongCode(t, seed)), fault.VerificationFailed)
	}
	end()

	f, end = restarted(t, dir, c)
	defer end()
	c.Advance(time.Minute)
	expect(t, "the right code in the pause", f.verify(t, ann, f.code(t, seed, 0)), fault.TooManyAttempts)
	expect(t, "a backup code that was used", f.verify(t, ann, codes[0]), fault.VerificationFailed)
	if login, err := f.logInByPasskey(t, v); err != nil || login.Account.UserID != user.ID {
		t.Errorf("a log-in by passkey: %+v, %v", login, err)
	}
	c.Advance(15 * time.Minute)
	expect(t, "the right code after the pause", f.verify(t, ann, f.code(t, seed, 0)), "")
}
