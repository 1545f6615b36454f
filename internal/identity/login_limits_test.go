package identity

import (
	"fmt"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// TestUnblockResetsFailures blocks each way to log in or to prove, and unblocks all of them.
func TestUnblockResetsFailures(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	entry := f.login(t, "ann")
	a := entry.Account
	seed, codes := f.withTOTP(t, a)
	bob := f.userWithPassword(t, "bob")
	bobs := f.newAccount(t, bob, false)
	wrong := f.wrongCode(t, seed)
	byName := func(n int, password string) error { return f.tryLogin(t, "Ann", password, address(n)) }
	byProof := func(a *Account, password string) error { return f.ProvePassword(ctx, a, password) }
	for n := range maxPasswordAttempts {
		_ = f.verify(t, a, wrong)
		_ = f.verify(t, a, "0000-0000-0000")
		_ = byName(n, otherPassword)
		_ = byProof(a, otherPassword)
		_ = byProof(bobs, otherPassword)
	}
	blocked := map[string]func() error{
		"a TOTP code":             func() error { return f.verify(t, a, f.code(t, seed, 0)) },
		"a backup code":           func() error { return f.verify(t, a, codes[0]) },
		"a log-in by name":        func() error { return byName(99, goodPassword) },
		"a proof of the password": func() error { return byProof(a, goodPassword) },
	}
	for what, try := range blocked {
		expect(t, what, try(), fault.TooManyAttempts)
	}
	refusedAs(t, "unblocking an unknown user", f.Unblock(ctx, "operator", "unknown"), fault.NotFound)
	if err := f.Unblock(ctx, "operator", "ANN"); err != nil {
		t.Fatal(err)
	}
	for what, try := range blocked {
		expect(t, what+", unblocked", try(), "")
	}
	expect(t, "another user that was not unblocked", byProof(bobs, goodPassword), fault.TooManyAttempts)
	if has, err := f.Factors(ctx, a.UserID); err != nil || !has.TOTP || has.BackupCodes != 9 {
		t.Errorf("the factors are %+v, %v", has, err)
	}
	events, _, err := f.Audit.Activity(ctx, a.UserID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for _, e := range events {
		if e.Action == "user.unblock" && e.Actor == "operator" {
			recorded++
		}
	}
	if recorded != 1 {
		t.Errorf("the audit has %d events, want 1: %s", recorded, fmt.Sprint(events))
	}
}
