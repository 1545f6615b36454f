package identity

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestResetFactorsEndsHalfOpenSessions ends sessions whose due factor was removed.
func TestResetFactorsEndsHalfOpenSessions(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	cookie, _ := f.enrol(t, f.login(t, "ann"))
	half := f.login(t, "ann")
	f.checkSession(t, "a half-open session", half.Secret, true)
	if err := f.ResetFactors(t.Context(), "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	f.checkSession(t, "the half-open session, after the reset", half.Secret, false)
	f.checkSession(t, "a complete session", cookie, true)
	if complete := f.login(t, "ann"); complete.Factors != nil {
		t.Errorf("the next log-in still needs %v", complete.Factors)
	}
}

func TestAHalfOpenSessionIsRefusedAndExpires(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	complete := f.login(t, "ann")
	cookie, code := f.enrol(t, complete)
	half := f.login(t, "ann")
	if !half.Account.HalfOpen || len(half.Factors) != 1 || half.Factors[0] != "2fa" || half.Expires != f.clock.Now().Add(halfOpenLife).Unix() {
		t.Fatalf("%+v", half)
	}
	a := half.Account
	name := "x"
	for what, err := range map[string]error{
		"list sessions":    second(f.Sessions(ctx, a)),
		"end a session":    f.EndSession(ctx, a, complete.Account.Credential),
		"end all":          second(f.EndSessions(ctx, a, true)),
		"change password":  second(f.ChangePassword(ctx, a, goodPassword, otherPassword)),
		"prove a password": f.ProvePassword(ctx, a, goodPassword),
		"change a profile": second(f.ChangeProfile(ctx, a, Profile{DisplayName: &name})),
		"list keys":        second(f.OwnKeys(ctx, a)),
		"get a key":        second(f.OwnKey(ctx, a, "key_1")),
		"create a key":     third(f.CreateOwnKey(ctx, a, KeySpec{})),
		"change a key":     second(f.ChangeOwnKey(ctx, a, "key_1", KeyChange{})),
		"rotate a key":     third(f.RotateOwnKey(ctx, a, "key_1", 0)),
		"revoke a key":     second(f.RevokeOwnKey(ctx, a, "key_1")),
		"callback secret":  third(f.RenewCallbackSecret(ctx, a, "key_1")),
	} {
		refusedAs(t, "half-open: "+what, err, fault.SecondFactorRequired)
	}
	err := f.store.Update(ctx, func(txn storage.Txn) error { return second(f.renewSession(txn, a)) })
	refusedAs(t, "half-open: renewal without the factor", err, fault.SecondFactorRequired)
	if list := must(f.Sessions(ctx, complete.Account))(t); len(list) != 1 {
		t.Errorf("a half-open session is listed: %+v", list)
	}

	entry := must(f.LoginCode(ctx, a, code()))(t)
	f.checkSession(t, "the half-open secret, after the factor", half.Secret, false)
	account, ok := f.sessionAccount(t, entry.Secret)
	if !ok || account.HalfOpen || account.Credential != a.Credential || entry.Account.HalfOpen ||
		entry.Expires != f.clock.Now().Add(time.Hour).Unix() {
		t.Errorf("%+v, %v, entry %+v", account, ok, entry)
	}
	_, err = f.LoginCode(ctx, a, code())
	refusedAs(t, "a factor for a session that is complete already", err, fault.NotLoggedIn)

	late := f.login(t, "ann")
	f.clock.Advance(halfOpenLife - time.Second)
	f.checkSession(t, "a half-open session a second before its end", late.Secret, true)
	f.clock.Advance(time.Second)
	f.checkSession(t, "a half-open session at its end", late.Secret, false)
	_, err = f.LoginCode(ctx, late.Account, code())
	refusedAs(t, "a factor for an expired session", err, fault.NotLoggedIn)

	out := f.login(t, "ann")
	if err := f.Logout(ctx, out.Account); err != nil {
		t.Fatal(err)
	}
	f.checkSession(t, "a half-open session that was logged out", out.Secret, false)
	f.checkSession(t, "the complete session", cookie, true)
}
