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
	f.person(t, "ann")
	gone, stays := f.login(t, "ann"), f.login(t, "ann")
	for range 2 { // the second changes nothing
		if err := f.Logout(t.Context(), gone.Account); err != nil {
			t.Fatal(err)
		}
		f.open(t, "a session that was logged out", gone.Secret, false)
	}
	f.open(t, "another session of the same user", stays.Secret, true)

	token := f.token(t, "ann")
	account, _ := f.AuthenticateToken(token)
	if err := f.Logout(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	f.admitted(t, "an access token that was logged out", token, false)
	next := f.token(t, "ann")
	if err := f.Logout(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	f.admitted(t, "the token after it", next, true)
}

func TestTheOtherSessionsOrAllAreEndedTogether(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.person(t, "ann")
	f.person(t, "bob")
	bobs := f.login(t, "bob")
	own, other := f.login(t, "ann"), f.login(t, "ann")

	renewed := must(f.EndSessions(ctx, own.Account, false))(t)
	f.open(t, "another session", other.Secret, false)
	f.open(t, "the old secret of the session that asked", own.Secret, false)
	account, ok := f.lets(t, renewed)
	if !ok || account.Credential != own.Account.Credential {
		t.Fatalf("its new secret: %+v, %v", account, ok)
	}
	next := f.login(t, "ann")
	f.open(t, "a session opened afterwards", next.Secret, true)

	if secret := must(f.EndSessions(ctx, account, true))(t); secret != "" {
		t.Error("a secret was given to no session")
	}
	for what, secret := range map[string]Secret{"the session that asked": renewed, "another": next.Secret} {
		f.open(t, what+", after all were ended", secret, false)
	}
	_, err := f.EndSessions(ctx, account, true)
	refusedAs(t, "ending all by a session that has ended", err, fault.NotLoggedIn)

	last := f.login(t, "ann")
	token := f.token(t, "ann")
	program, _ := f.AuthenticateToken(token)
	if secret := must(f.EndSessions(ctx, program, false))(t); secret != "" {
		t.Error("an access token was given a cookie")
	}
	f.open(t, "a session, when a program ends the others", last.Secret, false)
	f.admitted(t, "the program's access token", token, true)
	f.open(t, "a session of another user", bobs.Secret, true)
}

// Otherwise a thief of a token could hide earlier events behind many new ones.
func TestTheEndOfNoSessionIsNoEvent(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	user := f.person(t, "ann")
	own := f.login(t, "ann").Account
	program := f.program(t, user)
	for _, c := range []struct {
		what  string
		by    *Account
		event bool
	}{
		{"the others, where there are none", own, false},
		{"those of whom a token has", program, true},
		{"none, by a token", program, false},
	} {
		_, before, err := f.Audit.Activity(ctx, user.ID, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.by.goesOn(must(f.EndSessions(ctx, c.by, false))(t))
		_, after, err := f.Audit.Activity(ctx, user.ID, 0, 1)
		if err != nil || (after-before == 1) != c.event || after-before > 1 {
			t.Errorf("%s: %d events, %v", c.what, after-before, err)
		}
	}
	f.login(t, "ann")
	own = f.login(t, "ann").Account
	f.clock.Advance(time.Second)
	own.goesOn(must(f.EndSessions(ctx, own, false))(t))
	events, _, err := f.Audit.Activity(ctx, user.ID, 0, 1)
	if err != nil || events[0].Action != "session.end_others" {
		t.Errorf("%+v, %v", events, err)
	}
}

func TestAnOperatorSignsAUserOut(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ann := f.person(t, "ann")
	f.person(t, "bob")
	first, second, bobs := f.login(t, "ann"), f.login(t, "ann"), f.login(t, "bob")
	if err := f.SignOut(t.Context(), "operator", "ANN"); err != nil {
		t.Fatal(err)
	}
	f.open(t, "a session", first.Secret, false)
	f.open(t, "another session", second.Secret, false)
	f.open(t, "a session of another user", bobs.Secret, true)
	f.open(t, "a session opened afterwards", f.login(t, ann.Name).Secret, true)
	refusedAs(t, "signing out an unknown user", f.SignOut(t.Context(), "operator", "eve"), fault.NotFound)
}

func TestDisablingAUserEndsTheSessionsForGood(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.person(t, "ann")
	entry := f.login(t, "ann")
	must(f.SetUserDisabled(ctx, "operator", "ann", true))(t)
	f.open(t, "a session of a disabled user", entry.Secret, false)
	must(f.SetUserDisabled(ctx, "operator", "ann", false))(t)
	f.open(t, "it, when the user is enabled again", entry.Secret, false)
	f.open(t, "a new one", f.login(t, "ann").Secret, true)
}

// The user's record ends sessions even if their records remain: those of an old epoch, and
// those of a disabled user.
func TestTheUsersRecordEndsASessionThatIsStillThere(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*userRecord){
		"an old epoch":    func(u *userRecord) { u.Epoch++ },
		"a disabled user": func(u *userRecord) { u.Disabled = true },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newPeople(t)
			user := f.person(t, "ann")
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
			f.open(t, "it", entry.Secret, false)
			if list := must(f.Sessions(t.Context(), entry.Account))(t); len(list) != 0 {
				t.Errorf("it is listed: %+v", list)
			}
			_, err = f.ChangePassword(t.Context(), entry.Account, goodPassword, otherPassword)
			refusedAs(t, "a change by it", err, fault.NotLoggedIn)
		})
	}
}

// A session that is missing in the list of its user ends with the other sessions.
func TestASessionThatIsNotListedIsEndedTogetherWithTheOthers(t *testing.T) {
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
			user := f.person(t, "ann")
			own, lost := f.login(t, "ann"), f.login(t, "ann")
			err := f.store.Update(t.Context(), func(txn storage.Txn) error {
				return txn.Delete(storage.Key(userSessions.Name, user.ID, lost.Account.Credential))
			})
			if err != nil {
				t.Fatal(err)
			}
			f.open(t, "it", lost.Secret, true)
			if err := end(f, own.Account); err != nil {
				t.Fatal(err)
			}
			f.open(t, "it, afterwards,", lost.Secret, false)
		})
	}
}
