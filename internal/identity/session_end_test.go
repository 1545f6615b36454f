package identity

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

func TestLogOutEndsTheSessionOnTheServer(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	ended, kept := f.login(t, "ann"), f.login(t, "ann")
	for range 2 { // the second changes nothing
		if err := f.Logout(t.Context(), ended.Account); err != nil {
			t.Fatal(err)
		}
		f.checkSession(t, "a session that was logged out", ended.Secret, false)
	}
	f.checkSession(t, "another session of the same user", kept.Secret, true)

	token := f.token(t, "ann")
	account, _ := f.AuthenticateToken(token)
	if err := f.Logout(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	f.checkToken(t, "an access token that was logged out", token, false)
	next := f.token(t, "ann")
	if err := f.Logout(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	f.checkToken(t, "the next token", next, true)
}

func TestEndSessions(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	bobs := f.login(t, "bob")
	own, other := f.login(t, "ann"), f.login(t, "ann")

	renewed := must(f.EndSessions(ctx, own.Account, false))(t)
	f.checkSession(t, "another session", other.Secret, false)
	f.checkSession(t, "the old secret of the session of the request", own.Secret, false)
	account, ok := f.sessionAccount(t, renewed)
	if !ok || account.Credential != own.Account.Credential {
		t.Fatalf("the new secret: %+v, %v", account, ok)
	}
	next := f.login(t, "ann")
	f.checkSession(t, "a session opened afterwards", next.Secret, true)

	if secret := must(f.EndSessions(ctx, account, true))(t); secret != "" {
		t.Error("a secret was returned although no session is left")
	}
	for what, secret := range map[string]Secret{"the session of the request": renewed, "another": next.Secret} {
		f.checkSession(t, what+", after all were ended", secret, false)
	}
	_, err := f.EndSessions(ctx, account, true)
	refusedAs(t, "ending all by a session that has ended", err, fault.NotLoggedIn)

	last := f.login(t, "ann")
	token := f.token(t, "ann")
	program, _ := f.AuthenticateToken(token)
	if secret := must(f.EndSessions(ctx, program, false))(t); secret != "" {
		t.Error("a request with an access token returned a session secret")
	}
	f.checkSession(t, "a session, when a program ends the others", last.Secret, false)
	f.checkToken(t, "the program's access token", token, true)
	f.checkSession(t, "a session of another user", bobs.Secret, true)
}

// TestEndingNoSessionRecordsNoEvent ensures that a thief of a token cannot hide earlier events behind
// many new ones.
func TestEndingNoSessionRecordsNoEvent(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	user := f.userWithPassword(t, "ann")
	own := f.login(t, "ann").Account
	program := f.tokenAccount(t, user)
	for _, c := range []struct {
		what  string
		by    *Account
		event bool
	}{
		{"no other sessions, by a session", own, false},
		{"all sessions, by a token", program, true},
		{"no sessions, by a token", program, false},
	} {
		_, before, err := f.Audit.Activity(ctx, user.ID, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.by.setSecret(must(f.EndSessions(ctx, c.by, false))(t))
		_, after, err := f.Audit.Activity(ctx, user.ID, 0, 1)
		if err != nil || (after-before == 1) != c.event || after-before > 1 {
			t.Errorf("%s: %d events, %v", c.what, after-before, err)
		}
	}
	f.login(t, "ann")
	own = f.login(t, "ann").Account
	f.clock.Advance(time.Second)
	own.setSecret(must(f.EndSessions(ctx, own, false))(t))
	events, _, err := f.Audit.Activity(ctx, user.ID, 0, 1)
	if err != nil || events[0].Action != "session.end_others" {
		t.Errorf("%+v, %v", events, err)
	}
}

func TestAnOperatorSignsAUserOut(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ann := f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	first, second, bobs := f.login(t, "ann"), f.login(t, "ann"), f.login(t, "bob")
	if err := f.SignOut(t.Context(), "operator", "ANN"); err != nil {
		t.Fatal(err)
	}
	f.checkSession(t, "a session", first.Secret, false)
	f.checkSession(t, "another session", second.Secret, false)
	f.checkSession(t, "a session of another user", bobs.Secret, true)
	f.checkSession(t, "a session opened afterwards", f.login(t, ann.Name).Secret, true)
	refusedAs(t, "signing out an unknown user", f.SignOut(t.Context(), "operator", "eve"), fault.NotFound)
}

func TestDisablingAUserEndsTheSessionsPermanently(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	entry := f.login(t, "ann")
	must(f.SetUserDisabled(ctx, "operator", "ann", true))(t)
	f.checkSession(t, "a session of a disabled user", entry.Secret, false)
	must(f.SetUserDisabled(ctx, "operator", "ann", false))(t)
	f.checkSession(t, "the session of an enabled user", entry.Secret, false)
	f.checkSession(t, "a new session", f.login(t, "ann").Secret, true)
}

// TestTheUserRecordEndsStoredSessions checks that sessions of an old epoch and of a disabled user are
// not in force, even if their records remain.
func TestTheUserRecordEndsStoredSessions(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*userRecord){
		"an old epoch":    func(u *userRecord) { u.Epoch++ },
		"a disabled user": func(u *userRecord) { u.Disabled = true },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newPeople(t)
			user := f.userWithPassword(t, "ann")
			entry := f.login(t, "ann")
			err := f.store.Update(t.Context(), func(txn storage.Txn) error {
				_, err := userTable.Change(txn, table.Key{user.ID}, func(u *userRecord) bool {
					change(u)
					return true
				})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			f.checkSession(t, "the session", entry.Secret, false)
			if list := must(f.Sessions(t.Context(), entry.Account))(t); len(list) != 0 {
				t.Errorf("the session is listed: %+v", list)
			}
			_, err = f.ChangePassword(t.Context(), entry.Account, goodPassword, otherPassword)
			refusedAs(t, "a change by the session", err, fault.NotLoggedIn)
		})
	}
}

// TestASessionWithoutItsIndexEndsWithTheOthers removes a session from the index of its user.
func TestASessionWithoutItsIndexEndsWithTheOthers(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(f fixture, a *Account) error{
		"others":   func(f fixture, a *Account) error { return second(f.EndSessions(t.Context(), a, false)) },
		"all":      func(f fixture, a *Account) error { return second(f.EndSessions(t.Context(), a, true)) },
		"sign-out": func(f fixture, _ *Account) error { return f.SignOut(t.Context(), "operator", "ann") },
		"password change": func(f fixture, a *Account) error {
			return second(f.ChangePassword(t.Context(), a, goodPassword, otherPassword))
		},
		"operator's password": func(f fixture, _ *Account) error {
			return f.SetPassword(t.Context(), "operator", "ann", otherPassword)
		},
		"disabling, and enabling": func(f fixture, _ *Account) error {
			for _, disabled := range []bool{true, false} {
				if _, err := f.SetUserDisabled(t.Context(), "operator", "ann", disabled); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newPeople(t)
			user := f.userWithPassword(t, "ann")
			own, lost := f.login(t, "ann"), f.login(t, "ann")
			err := f.store.Update(t.Context(), func(txn storage.Txn) error {
				return txn.Delete(storage.Key(userSessions.Name, user.ID, lost.Account.Credential))
			})
			if err != nil {
				t.Fatal(err)
			}
			f.checkSession(t, "the session", lost.Secret, true)
			if err := end(f, own.Account); err != nil {
				t.Fatal(err)
			}
			f.checkSession(t, "the session, afterwards,", lost.Secret, false)
		})
	}
}
