package identity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func (f fixture) token(t testing.TB, user string) string {
	t.Helper()
	secret, err := f.MintToken(t.Context(), "operator", user)
	if err != nil {
		t.Fatal(err)
	}
	return secret.Reveal()
}

// checkToken checks whether an access token is in force, now and after a restart.
func (f fixture) checkToken(t *testing.T, what, token string, want bool) {
	t.Helper()
	for when, d := range map[string]*Directory{"in memory": f.Directory, "after a restart": f.reopened(t)} {
		if _, got := d.AuthenticateToken(token); got != want {
			t.Errorf("%s is accepted %s: %v, want %v", what, when, got, want)
		}
	}
}

func TestATokenAuthenticatesItsUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.user(t, "ann")
	f.user(t, "bob")
	token, other := f.token(t, ann.ID), f.token(t, "bob")
	shown, err := f.User(t.Context(), "ann")
	if err != nil || shown.Token == nil || shown.Token.Created != f.clock.Now().Unix() {
		t.Fatalf("%+v, %v", shown, err)
	}
	for _, d := range []*Directory{f.Directory, f.reopened(t)} {
		account, ok := d.AuthenticateToken(token)
		if want := (Account{UserID: ann.ID, UserName: "ann", Credential: shown.Token.ID}); !ok || *account != want {
			t.Errorf("%+v, %v; want %+v", account, ok, want)
		}
		if account, ok := d.AuthenticateToken(other); !ok || account.UserName != "bob" {
			t.Errorf("%+v, %v", account, ok)
		}
	}
}

func TestTokenChangesApplyToTheNextRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	f.user(t, "ann")
	first := f.token(t, "ann")
	f.checkToken(t, "a fresh token", first, true)
	second := f.token(t, "ANN")
	f.checkToken(t, "a token that was replaced", first, false)
	f.checkToken(t, "the next token", second, true)

	if _, err := f.SetUserDisabled(ctx, "operator", "ann", true); err != nil {
		t.Fatal(err)
	}
	f.checkToken(t, "a token of a disabled user", second, false)
	if _, err := f.MintToken(ctx, "operator", "ann"); codeOf(err) != fault.Conflict {
		t.Errorf("a token for a disabled user: %v", err)
	}
	if _, err := f.SetUserDisabled(ctx, "operator", "ann", false); err != nil {
		t.Fatal(err)
	}
	f.checkToken(t, "a token of an enabled user", second, true)

	for range 2 { // the second changes nothing
		if err := f.RevokeToken(ctx, "operator", "ann"); err != nil {
			t.Fatal(err)
		}
		f.checkToken(t, "a revoked token", second, false)
		if user, err := f.User(ctx, "ann"); err != nil || user.Token != nil {
			t.Errorf("a revoked token is shown: %+v, %v", user.Token, err)
		}
	}
	third := f.token(t, "ann")
	f.checkToken(t, "a token after a revoked one", third, true)
	f.checkToken(t, "the revoked token", second, false)
}

func TestADisabledUsersTokenCanBeRevoked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	token := f.token(t, "ann")
	if _, err := f.SetUserDisabled(t.Context(), "operator", "ann", true); err != nil {
		t.Fatal(err)
	}
	if err := f.RevokeToken(t.Context(), "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetUserDisabled(t.Context(), "operator", "ann", false); err != nil {
		t.Fatal(err)
	}
	f.checkToken(t, "a token revoked before its user was enabled", token, false)
}

func TestKeysAndTokensAreNotInterchangeable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	_, key := f.key(t, "ann", KeySpec{})
	token := f.token(t, "ann")
	f.checkKey(t, "an access token as a key", token, false)
	f.checkToken(t, "a key as an access token", key, false)

	// The hashes alone are not accepted either, because each class has its own table.
	keyHash, _ := credential.APIKey.Hash(key)
	tokenHash, _ := credential.AccessToken.Hash(token)
	if _, ok := f.keys.Find(tokenHash, f.clock.Now); ok {
		t.Error("a token's hash is among the keys")
	}
	if _, ok := f.tokens.Find(keyHash, f.clock.Now); ok {
		t.Error("a key's hash is among the tokens")
	}
	if n := f.Count(); n != 2 {
		t.Errorf("%d credentials, want 2", n)
	}
}

func TestTokensInMemoryMatchTheStoreAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault storagetest.Fault
		want  bool // the token is still in force
	}{
		"committed":     {storagetest.UnknownCommitted, false},
		"not committed": {storagetest.UnknownLost, true},
	} {
		for what, change := range map[string]func(fixture) error{
			"revoke":  func(f fixture) error { return f.RevokeToken(t.Context(), "operator", "ann") },
			"mint":    func(f fixture) error { _, err := f.MintToken(t.Context(), "operator", "ann"); return err },
			"disable": func(f fixture) error { _, err := f.SetUserDisabled(t.Context(), "operator", "ann", true); return err },
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				f.user(t, "ann")
				token := f.token(t, "ann")
				f.engine.Plan(c.fault)
				if err := change(f); codeOf(err) != fault.StoreUnavailable {
					t.Errorf("the error is %v", err)
				}
				f.checkToken(t, "the token", token, c.want)
			})
		}
	}
}

func TestATokenIsRefusedWhenTheStoreCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	token := f.token(t, "ann")
	f.engine.Plan(storagetest.SyncFailed)
	if err := f.RevokeToken(t.Context(), "operator", "ann"); codeOf(err) != fault.StoreUnavailable {
		t.Errorf("the error is %v", err)
	}
	if _, ok := f.AuthenticateToken(token); ok {
		t.Error("a token whose revocation may have happened is accepted")
	}
}

func TestEventsAreRecordedAtomically(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.user(t, "ann")
	now := f.clock.Now().Add(time.Hour)
	refused := errors.New("refused")
	for _, outcome := range []error{nil, refused} {
		err := f.store.Update(t.Context(), func(txn storage.Txn) error {
			user, err := findUser(txn, "Ann")
			if err != nil {
				return err
			}
			event := audit.Event{Actor: user.ID, Action: fmt.Sprintf("wallet.%v", outcome), User: user.ID, Detail: "9.90"}
			if err := audit.Record(t.Context(), txn, now, &event); err != nil {
				return err
			}
			return outcome
		})
		if !errors.Is(err, outcome) {
			t.Fatal(err)
		}
	}
	want := audit.Event{Time: now.Unix(), Actor: ann.ID, Action: "wallet.<nil>", User: ann.ID, Detail: "9.90"}
	if got := f.events(t); len(got) != 2 || got[0] != want {
		t.Errorf("recorded %+v, want %+v before the user's creation", got, want)
	}
}

// events returns the audit events of each user, newest first, and then those without a user.
func (f fixture) events(t testing.TB) []audit.Event {
	t.Helper()
	var events []audit.Event
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		for _, bounds := range []string{"audit/0 audit0", "audit// audit/0"} {
			lo, hi, _ := strings.Cut(bounds, " ")
			err := r.Scan([]byte(lo), []byte(hi), func(_, val []byte) bool {
				var e audit.Event
				if err := storage.DecodeRecord(val, &e); err != nil {
					t.Error(err)
				}
				events = append(events, e)
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}
