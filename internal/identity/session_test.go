package identity

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestASessionAuthenticatesOnlyItsUser(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ann := f.userWithPassword(t, "Ann")
	entry := f.login(t, "ann")
	account, ok := f.sessionAccount(t, entry.Secret)
	want := Account{UserID: ann.ID, UserName: "Ann", Credential: account.Credential, Session: true, Opened: f.clock.Now().Unix()}
	want.setSecret(entry.Secret)
	if !ok || *account != want || *entry.Account != want || !strings.HasPrefix(account.Credential, "ses_") {
		t.Errorf("%+v, %v; want %+v", account, ok, want)
	}
	if len(entry.Secret.Reveal()) != 43 || entry.Factors != nil || entry.Expires != f.clock.Now().Add(time.Hour).Unix() {
		t.Errorf("%d digits, factors %v, expires %d", len(entry.Secret.Reveal()), entry.Factors, entry.Expires)
	}
	secret := entry.Secret.Reveal()
	token, _ := f.MintToken(t.Context(), "operator", "ann")
	_, key := f.key(t, "ann", KeySpec{})
	for _, other := range []string{
		"", secret[:42], secret + "x", " " + secret[1:], secret[:42] + "-", secret[:42] + "\x00",
		strings.Repeat("a", 43), account.Credential, token.Reveal(), key, key[:43],
	} {
		f.checkSession(t, fmt.Sprintf("%q", other), Secret(other), false)
	}
	if _, ok := f.AuthenticateToken(secret); ok {
		t.Error("a session is accepted as an access token")
	}
	if _, ok := f.Authenticate(secret); ok {
		t.Error("a session is accepted as an API key")
	}
}

func TestTheStoreHasNoSessionSecrets(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	entry := f.login(t, "ann")
	token := f.token(t, "ann")
	code := must(f.IssueResetCode(t.Context(), "operator", "ann"))(t).Reveal()
	key, _, err := f.CreateOwnKey(t.Context(), entry.Account, KeySpec{})
	if err != nil {
		t.Fatal(err)
	}
	_, callback, err := f.RenewCallbackSecret(t.Context(), entry.Account, key.ID)
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{
		goodPassword, entry.Secret.Reveal(), token, code, strings.ReplaceAll(code, "-", ""),
		callback.Reveal(), strings.TrimPrefix(callback.Reveal(), callbackPrefix),
	}
	err = f.store.View(t.Context(), func(r storage.Reader) error {
		return r.Scan(nil, nil, func(key, val []byte) bool {
			for _, secret := range secrets {
				if strings.Contains(string(key)+string(val), secret) {
					t.Errorf("%q has a secret", key)
				}
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if shown := fmt.Sprintf("%v %+v %#v", entry, entry, entry); strings.Contains(shown, entry.Secret.Reveal()) {
		t.Error("an entry prints its secret")
	}
}

func TestASessionEndsAfterItsIdleTimeAndItsLifetime(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	idle := f.login(t, "ann")
	f.clock.Advance(time.Hour - time.Second)
	if err := f.store.View(t.Context(), func(storage.Reader) error { return nil }); err != nil {
		t.Fatal(err)
	}
	// This reads the records, because authenticating would use the session.
	inForce := func(secret Secret) bool {
		hash, _ := credential.HashPlain(secret.Reveal())
		var s *sessionRecord
		var user *userRecord
		err := f.store.View(t.Context(), func(r storage.Reader) (err error) {
			if s, err = mustGet(r, &sessionTable, string(hash[:])); err != nil {
				return err
			}
			user, err = mustGet(r, &userTable, s.UserID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return s.inForce(user, f.clock.Now())
	}
	if !inForce(idle.Secret) {
		t.Error("the session has ended a second before its idle time")
	}
	f.clock.Advance(time.Second - time.Nanosecond)
	if !inForce(idle.Secret) {
		t.Error("the session has ended a nanosecond before its idle time")
	}
	f.clock.Advance(time.Nanosecond)
	f.checkSession(t, "a session that was idle for an hour", idle.Secret, false)

	used := f.login(t, "ann")
	begun := f.clock.Now()
	for f.clock.Now().Before(begun.Add(10*time.Hour - 30*time.Minute)) {
		f.clock.Advance(30 * time.Minute)
		if f.clock.Now().Before(begun.Add(10 * time.Hour)) {
			f.checkSession(t, "a session in use", used.Secret, true)
		}
		if err := f.store.Flush(t.Context()); err != nil { // wait until its use is recorded
			t.Fatal(err)
		}
	}
	f.clock.Advance(begun.Add(10*time.Hour - time.Second).Sub(f.clock.Now()))
	f.checkSession(t, "a session in use, a second before its lifetime ends", used.Secret, true)
	f.clock.Advance(time.Second)
	f.checkSession(t, "a session in use, at the end of its lifetime", used.Secret, false)
}

func TestUseIsRecordedAtIntervals(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	entry := f.login(t, "ann")
	seen := func() int64 {
		if err := f.store.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return must(f.Sessions(t.Context(), entry.Account))(t)[0].Seen
	}
	begun := seen()
	f.clock.Advance(5*time.Minute - time.Second)
	f.checkSession(t, "the session", entry.Secret, true)
	if got := seen(); got != begun {
		t.Errorf("recorded after %d s", got-begun)
	}
	f.clock.Advance(time.Second)
	f.checkSession(t, "the session", entry.Secret, true)
	if got := seen(); got != f.clock.Now().Unix() {
		t.Errorf("after 5 minutes the last use is %d s ago", f.clock.Now().Unix()-got)
	}
	f.clock.Advance(time.Hour - time.Second)
	f.checkSession(t, "less than an hour after its last use, the session", entry.Secret, true)
}

func TestALogInHasANewIDAndANewSecret(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	seen := map[string]bool{}
	for range 5 {
		entry := f.login(t, "ann")
		if seen[entry.Secret.Reveal()] || seen[entry.Account.Credential] {
			t.Fatal("an id or a secret was used twice")
		}
		seen[entry.Secret.Reveal()], seen[entry.Account.Credential] = true, true
	}
	// A secret that the client invented is refused before and after a log-in.
	chosen := strings.Repeat("Planted", 6) + "0"
	f.checkSession(t, "a secret that a client chose", Secret(chosen), false)
	f.login(t, "ann")
	f.checkSession(t, "the secret that a client chose, after a log-in", Secret(chosen), false)
}

func TestSessionsAreListedAndEndedByTheirUser(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	agent := strings.Repeat("x", 255) + "ü" + "y"
	from := Device{Address: netip.MustParseAddr("::ffff:198.51.100.9"), Agent: agent}
	first := must(f.Login(ctx, "ann", goodPassword, from, testTerms))(t)
	f.clock.Advance(time.Second)
	second := f.login(t, "ann")
	bobs := f.login(t, "bob")

	list := must(f.Sessions(ctx, first.Account))(t)
	if len(list) != 2 || list[0].ID != second.Account.Credential || list[1].ID != first.Account.Credential ||
		list[0].Current || !list[1].Current {
		t.Fatalf("%+v", list)
	}
	if s := list[1]; s.Address != "198.51.100.9" || s.Agent != strings.Repeat("x", 255) || !utf8.ValidString(s.Agent) {
		t.Errorf("device %q %q", s.Address, s.Agent)
	}
	if list[0].Expires != second.Expires {
		t.Errorf("the session expires at %d, its entry has %d", list[0].Expires, second.Expires)
	}

	ofOther := f.EndSession(ctx, first.Account, bobs.Account.Credential)
	never := f.EndSession(ctx, first.Account, "ses_0000000000000000")
	refusedAs(t, "ending another's session", ofOther, fault.NotFound)
	if a, b := strings.ReplaceAll(ofOther.Error(), bobs.Account.Credential, "ID"), strings.ReplaceAll(never.Error(), "ses_0000000000000000", "ID"); a != b {
		t.Errorf("of another user: %q, unknown: %q", a, b)
	}
	byPath := f.EndSession(ctx, first.Account, "../"+bobs.Account.UserID+"/"+bobs.Account.Credential)
	refusedAs(t, "ending another's session by a path", byPath, fault.NotFound)
	f.checkSession(t, "another's session", bobs.Secret, true)

	if err := f.EndSession(ctx, first.Account, second.Account.Credential); err != nil {
		t.Fatal(err)
	}
	f.checkSession(t, "a session that was ended", second.Secret, false)
	f.checkSession(t, "the session that ended it", first.Secret, true)
	refusedAs(t, "ending it again", f.EndSession(ctx, first.Account, second.Account.Credential), fault.NotFound)
}

func TestSessionsPerUserAreLimited(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	user := f.userWithPassword(t, "ann")
	opened := func(half bool) Entry {
		f.clock.Advance(time.Second)
		var entry Entry
		err := f.store.Update(t.Context(), func(txn storage.Txn) (err error) {
			entry, err = f.openSession(txn, user.ID, testDevice, testTerms, half)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return entry
	}
	var entries []Entry
	for range maxSessions {
		entries = append(entries, opened(false))
	}
	var halves []Entry
	for range maxHalfSessions + 1 {
		halves = append(halves, opened(true))
	}
	f.checkSession(t, "the oldest of the maximum number", entries[0].Secret, true)
	f.checkSession(t, "the oldest of too many half-open sessions", halves[0].Secret, false)
	f.checkSession(t, "the second half-open session", halves[1].Secret, true)
	opened(false)
	f.checkSession(t, "the oldest of too many sessions", entries[0].Secret, false)
	f.checkSession(t, "the second session", entries[1].Secret, true)
	f.checkSession(t, "a half-open session", halves[1].Secret, true)

	f.clock.Advance(11 * time.Hour) // all have ended: the next log-in removes them
	opened(false)
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		sessions, err := sessionsOf(r, user.ID)
		if len(sessions) != 1 {
			t.Errorf("%d records are left", len(sessions))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFailedStoreIsNotALogOut(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	entry := f.login(t, "ann")
	f.engine.Plan(storagetest.SyncFailed)
	_ = f.SignOut(t.Context(), "operator", "ann")
	_, _, err := f.AuthenticateSession(t.Context(), entry.Secret.Reveal())
	refusedAs(t, "a session", err, fault.StoreUnavailable)
}

// TestASessionWithoutItsHashIsDenied checks that a damaged record neither ends the process nor
// authenticates a caller.
func TestASessionWithoutItsHashIsDenied(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(record map[string]any){
		"no hash":        func(record map[string]any) { delete(record, "hash") },
		"an empty hash":  func(record map[string]any) { record["hash"] = "" },
		"a short hash":   func(record map[string]any) { record["hash"] = "AAAA" },
		"another's hash": func(record map[string]any) { record["hash"] = base64.StdEncoding.EncodeToString(make([]byte, 32)) },
	} {
		f := newPeople(t)
		f.userWithPassword(t, "ann")
		entry := f.login(t, "ann")
		hash, _ := credential.HashPlain(entry.Secret.Reveal())
		key := storage.AppendKey(storage.Key(sessionTable.Name), string(hash[:]))
		err := f.store.Update(t.Context(), func(txn storage.Txn) error {
			stored, err := txn.Get(key)
			if err != nil {
				return err
			}
			record := map[string]any{}
			if err := json.Unmarshal(stored[1:], &record); err != nil {
				return err
			}
			damage(record)
			damaged, err := json.Marshal(record)
			if err != nil {
				return err
			}
			return txn.Set(key, append(stored[:1:1], damaged...), time.Time{})
		})
		if err != nil {
			t.Fatal(err)
		}
		account, ok, err := f.AuthenticateSession(t.Context(), entry.Secret.Reveal())
		if account != nil || ok || codeOf(err) != fault.StoreUnavailable {
			t.Errorf("%s: %+v, %v, %v", what, account, ok, err)
		}
		err = f.Fresh(t.Context(), entry.Account)
		if codeOf(err) != fault.NotLoggedIn && codeOf(err) != fault.StoreUnavailable {
			t.Errorf("%s, read by its id: %v", what, err)
		}
	}
}
