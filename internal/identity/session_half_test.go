package identity

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// The factor that is due in them was removed, so they could only expire.
func TestAnOperatorsResetEndsHalfOpenSessions(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.person(t, "ann")
	cookie, _ := f.enrolled(t, f.login(t, "ann"))
	half := f.login(t, "ann")
	f.open(t, "a half-open session", half.Secret, true)
	if err := f.ResetFactors(t.Context(), "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	f.open(t, "it, after the reset", half.Secret, false)
	f.open(t, "a whole one", cookie, true)
	if whole := f.login(t, "ann"); whole.Factors != nil {
		t.Errorf("the next log-in is short of %v", whole.Factors)
	}
}

func TestAHalfOpenSessionDoesNothingAndEndsSoon(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.person(t, "ann")
	whole := f.login(t, "ann")
	cookie, code := f.enrolled(t, whole)
	half := f.login(t, "ann")
	if !half.Account.HalfOpen || len(half.Factors) != 1 || half.Factors[0] != "2fa" || half.Expires != f.clock.Now().Add(halfLife).Unix() {
		t.Fatalf("%+v", half)
	}
	a := half.Account
	name := "x"
	for what, err := range map[string]error{
		"list sessions":    second(f.Sessions(ctx, a)),
		"end a session":    f.EndSession(ctx, a, whole.Account.Credential),
		"end all":          second(f.EndSessions(ctx, a, true)),
		"change password":  second(f.ChangePassword(ctx, a, goodPassword, otherPassword)),
		"prove a password": f.ProvePassword(ctx, a, goodPassword),
		"change a profile": second(f.ChangeProfile(ctx, a, Profile{DisplayName: &name})),
		"list keys":        second(f.OwnKeys(ctx, a)),
		"see a key":        second(f.OwnKey(ctx, a, "key_1")),
		"make a key":       third(f.CreateOwnKey(ctx, a, KeySpec{})),
		"change a key":     second(f.ChangeOwnKey(ctx, a, "key_1", KeyChange{})),
		"rotate a key":     third(f.RotateOwnKey(ctx, a, "key_1", 0)),
		"revoke a key":     second(f.RevokeOwnKey(ctx, a, "key_1")),
		"callback secret":  third(f.RenewCallbackSecret(ctx, a, "key_1")),
	} {
		refusedAs(t, "half-open: "+what, err, fault.SecondFactorRequired)
	}
	err := f.store.Update(ctx, func(txn storage.Txn) error { return second(f.renewSession(txn, a)) })
	refusedAs(t, "half-open: renewal by anything but the factor", err, fault.SecondFactorRequired)
	if list := must(f.Sessions(ctx, whole.Account))(t); len(list) != 1 {
		t.Errorf("a half-open session is listed: %+v", list)
	}

	entry := must(f.LoginCode(ctx, a, code()))(t)
	f.open(t, "the half-open secret, after the factor", half.Secret, false)
	account, ok := f.lets(t, entry.Secret)
	if !ok || account.HalfOpen || account.Credential != a.Credential || entry.Account.HalfOpen ||
		entry.Expires != f.clock.Now().Add(time.Hour).Unix() {
		t.Errorf("%+v, %v, entry %+v", account, ok, entry)
	}
	_, err = f.LoginCode(ctx, a, code())
	refusedAs(t, "a factor for a half-open session that is whole by now", err, fault.NotLoggedIn)

	late := f.login(t, "ann")
	f.clock.Advance(halfLife - time.Second)
	f.open(t, "a half-open session a second before its end", late.Secret, true)
	f.clock.Advance(time.Second)
	f.open(t, "a half-open session at its end", late.Secret, false)
	_, err = f.LoginCode(ctx, late.Account, code())
	refusedAs(t, "a factor for it", err, fault.NotLoggedIn)

	out := f.login(t, "ann")
	if err := f.Logout(ctx, out.Account); err != nil {
		t.Fatal(err)
	}
	f.open(t, "a half-open session that was logged out", out.Secret, false)
	f.open(t, "the whole one from before", cookie, true)
}
